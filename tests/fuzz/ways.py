"""Ways to ask for the same thing, and what they disagree about."""

import contextlib
import csv
import io
import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from forerun.search.answer.searches import leaderboard_of
from forerun.search.api import simulate_setting
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.explore.flat.exhaustive import SliceResult, search_slice
from forerun.search.explore.flat.flat_search import problem_of
from forerun.search.formats.contract import Launch
from forerun.search.formats.exporting import export
from forerun.search.formats.importing import import_texts
from forerun.search.request.request import Request
from forerun.search.request.setting import Setting
from forerun.spaces.errors import ForerunError, RequestError
from forerun.spaces.strategies import Strategy
from tests.fuzz.sample import quiet

FIGURES = (
    "step_time_s",
    "peak_memory_gib",
    "throughput",
    "mfu",
    "fits",
    "cost_usd_per_hour",
    "gpus",
    "memory_limit_gib",
)


def alone(setting: Setting, board: Leaderboard, random: Random) -> Iterator[str]:
    """Yield what a row of a search and its strategy alone differ in, and the parts that do not add up."""
    row = random.choice(board.rows)
    again = simulate_setting(setting, str(row.strategy) if random.random() < 0.5 else row.strategy)
    for name in FIGURES:
        if getattr(again, name) != getattr(row, name):
            yield f"simulate says {name} {getattr(again, name)}, search {getattr(row, name)} of {row.name}"
    for whole, parts in ((row.step_time_s, row.breakdown_s), (row.peak_memory_gib, row.memory_gib)):
        if not math.isclose(math.fsum(parts.values()), whole, rel_tol=1e-9):
            yield f"parts of {row.name} do not add up to {whole}"


def written(setting: Setting, board: Leaderboard, random: Random) -> Iterator[str]:
    """Yield what JSON and CSV say else than the rows."""
    document = json.loads(json.dumps(board.to_json(), allow_nan=False))
    lines = list(csv.DictReader(io.StringIO(board.to_csv())))
    for row, told, line in zip(board.rows, document["leaderboard"], lines, strict=True):
        if (told["step_time_s"], told["strategy"]) != (row.step_time_s, row.name):
            yield f"JSON says something else than {row.name}"
        if float(line["step_time_s"]) != row.step_time_s or line["strategy"] != row.name:
            yield f"CSV says something else than {row.name}"


def exported(setting: Setting, board: Leaderboard, random: Random) -> Iterator[str]:
    """Yield what comes back otherwise than it was exported."""
    strategy = random.choice(board.rows).strategy
    if not isinstance(strategy, Strategy):
        return
    launch = Launch(
        strategy=strategy,
        model=setting.context.model,
        workload=setting.context.workload,
        devices_per_node=setting.context.cluster.devices_per_node,
    )
    with contextlib.suppress(ForerunError):  # most formats know some strategies only
        for files in export(launch, setting.context, "all").files.values():
            try:
                read = import_texts(files, gpus=strategy.devices).strategy
            except RequestError as error:
                yield f"an exported file is not read: {error}"
                continue
            degrees = ("devices", "tp", "pp", "cp", "mbs")
            if any(getattr(read, name) != getattr(strategy, name) for name in degrees):
                yield f"{strategy} was exported and read as {read}"


def sliced(setting: Setting, board: Leaderboard, random: Random) -> Iterator[str]:
    """Yield what the width and the order of slices change."""
    problem = problem_of(setting)
    cuts = sorted({0, problem.space.size, *(random.randrange(problem.space.size + 1) for _ in range(5))})
    spans = list(itertools.pairwise(cuts))
    random.shuffle(spans)
    piece = SliceResult()
    for low, high in spans:
        piece = problem.merged([piece, search_slice(problem, low, high)])
    again = leaderboard_of(setting, piece, noted=False)
    if [row.to_json() for row in again.rows] != [row.to_json() for row in board.rows]:
        yield f"slices {spans} give another leaderboard"


def asked(request: Request, *, gpus: bool = True) -> list[str]:
    """Return the words of the command line that ask the same."""
    words = [request.model, "--cluster", request.cluster, "--global-batch", str(request.global_batch)]
    for flag, value in (
        ("--seq-len", request.seq_len),
        ("--framework", request.framework),
        ("--precision", request.precision),
        ("--calibration", request.calibration),
        ("--gpus", request.gpus if gpus else None),
        ("--usd-per-gpu-hour", request.usd_per_gpu_hour),
        ("--moe-imbalance", request.moe_imbalance),
        ("--documents", request.documents),
        ("--lora", request.lora),
    ):
        words += [] if value is None else [flag, str(value)]
    for name, setting in request.switches.items():
        words += ["--with", f"{name}={setting}"]
    return words


def elsewhere(setting: Setting, board: Leaderboard, random: Random) -> Iterator[str]:
    """Yield what another process says that has other hash seeds, another locale, more threads and two workers."""
    request = setting.request
    words = [
        "search",
        *asked(request),
        "--top",
        str(request.top),
        "--objective",
        str(request.objective or "throughput"),
    ]
    surroundings = {
        "PYTHONHASHSEED": str(random.randrange(2**32)), "LC_ALL": random.choice(("C", "de_DE.UTF-8", "tr_TR.UTF-8")),
        "OMP_NUM_THREADS": "2", "TZ": "Pacific/Auckland", "COLUMNS": "40",
    }  # fmt: skip
    told = subprocess.run(
        [sys.executable, "-m", "forerun.search", *words, "--json", "--workers", "processes", "--worker-count", "2"],
        env=os.environ | surroundings, capture_output=True, check=False, encoding="utf-8",
    )  # fmt: skip
    if told.returncode:
        yield f"exit {told.returncode} with {surroundings}: {told.stderr[-300:]}"
    elif json.loads(told.stdout)["leaderboard"] != json.loads(json.dumps(board.to_json()))["leaderboard"]:
        yield f"another leaderboard with {surroundings}"


def commanded(setting: Setting, board: Leaderboard, random: Random, folder: Path) -> Iterator[str]:
    """Yield what the command line, its page and a sweep say else than Python."""
    request = setting.request
    page = folder / "page.html"
    page.unlink(missing_ok=True)
    words = ["search", *asked(request), "--top", str(request.top)]
    words += [] if request.objective is None else ["--objective", str(request.objective)]
    paged = [] if request.seq_len is None else ["--report", str(page)]
    told = json.loads(quiet(*words, "--json", *paged))
    if [row["step_time_s"] for row in told["leaderboard"]] != [row.step_time_s for row in board.rows]:
        yield "the command line gives another leaderboard"
    os.environ["COLUMNS"] = "500"  # no row of the table is broken
    shown = {"table": quiet(*words)} | ({"page": page.read_text(encoding="utf-8")} if paged else {})
    for what, text in shown.items():
        once = re.search(r"^all rows: (.*)$", text, re.MULTILINE)  # words of all rows, printed once above the table
        shared = once.group(1).split() if once else []
        names = [" ".join(word for word in row.name.split() if word not in shared) for row in board.rows]
        missing = [name for name in names if name not in text]
        if missing:
            yield f"the {what} has no {missing[0]}"
    row = random.choice(board.rows)
    figures = json.loads(quiet("simulate", *asked(request, gpus=False), "--json", "--strategy", row.name))
    if figures["step_time_s"] != row.step_time_s:
        yield f"simulate prints {figures['step_time_s']} for {row.name}, search has {row.step_time_s}"


def as_tree(setting: Setting, board: Leaderboard, random: Random, folder: Path) -> Iterator[str]:
    """Yield what a strategy and the tree that says the same differ in, event by event."""
    request = setting.request
    row = next((row for row in random.sample(board.rows, len(board.rows)) if not row.strategy.software), None)
    if row is None:  # trees say nothing of the software
        return
    words, tree = ["simulate", *asked(request, gpus=False), "--json"], folder / "tree.yaml"
    flat = json.loads(quiet(*words, "--fidelity", "events", "--strategy", row.name))
    quiet(*words, "--write-tree", str(tree), "--force", "--strategy", row.name)
    again = json.loads(quiet(*words, "--tree", str(tree)))
    for name in ("step_time_s", "peak_memory_gib"):
        if not math.isclose(flat[name], again[name], rel_tol=1e-9):
            yield f"{row.name} has {name} {flat[name]} event by event, and {again[name]} as a tree"
