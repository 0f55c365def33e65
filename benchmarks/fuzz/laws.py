"""Laws between answers of the public interface, for random requests of every kind.

    python -m benchmarks.fuzz.laws [--cases 1000] [--seed 0] [--minutes M]

A case is a random request: a model and a cluster of the catalogue, devices, batch, sequence, framework, precision. All
ways to ask for it must agree (search, simulate, explain, slices of any width, JSON, CSV, exported and read again), and
a better machine must not be worse (``docs/laws.md`` says by how much an estimate may be).
"""

import argparse
import contextlib
import csv
import dataclasses
import io
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from random import Random

import numpy as np

from forerun.search.api import explain, leaderboard_of, problem_of, search_request, simulate_setting
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.diagnosis.diagnosis import NoAnswer
from forerun.search.flat.exhaustive import SliceResult, search_slice
from forerun.search.formats.contract import Launch
from forerun.search.formats.exporting import export
from forerun.search.formats.importing import import_texts
from forerun.search.request.request import Request, Setting, resolve
from forerun.simulator import score
from forerun.spaces.clusters import Cluster, cluster_names
from forerun.spaces.errors import ForerunError, RequestError
from forerun.spaces.frameworks import framework_names
from forerun.spaces.models import model_names
from forerun.spaces.strategies import Context, table_of

ROUNDING = 1e-9
PIPELINE_SLACK = 0.10
"""By how much an estimate of a pipeline may be worse on a better machine (docs/laws.md)."""


def random_request(random: Random) -> Request:
    """Return a request; many ask for something that no machine or framework has."""
    return Request(
        model=random.choice(model_names()),
        cluster=random.choice(cluster_names()),
        gpus=str(random.choice((1, 2, 4, 8, 8, 16, 16, 24, 32, 64))),
        global_batch=random.choice((8, 16, 32, 48, 64, 96, 128, 256)),
        seq_len=random.choice((128, 512, 1000, 1024, 2048, 4096)),
        framework=random.choice(framework_names()),
        precision=random.choice((None, None, "bf16", "fp16", "fp8", "tf32")),
        objective=random.choice(("throughput", "throughput", "cost", "headroom")),
        usd_per_gpu_hour=random.choice((None, 2.0)),
        top=random.choice((1, 5, 20)),
    )


def agreements(setting: Setting, board: Leaderboard, random: Random) -> Iterator[str]:
    """Yield what ways to ask for the same thing disagree about."""
    request, row = setting.request, random.choice(board.rows)
    alone = simulate_setting(setting, row.strategy)
    for name in ("step_time_s", "peak_memory_gib", "tokens_per_s", "mfu", "fits", "cost_usd_per_hour"):
        if getattr(alone, name) != getattr(row, name):
            yield f"simulate says {name} {getattr(alone, name)}, search {getattr(row, name)}"
    fields = {name: getattr(request, name) for name in ("cluster", "global_batch", "seq_len", "framework", "precision")}
    why = explain(request.model, strategy=row.strategy, **fields)
    if why.row.step_time_s != row.step_time_s:
        yield f"explain says {why.row.step_time_s}, search {row.step_time_s}"
    document = json.loads(json.dumps(board.to_json()))
    told = document["leaderboard"][board.rows.index(row)]
    if told["step_time_s"] != row.step_time_s or told["strategy"] != row.name:
        yield "JSON says something else than the rows"
    lines = list(csv.DictReader(io.StringIO(board.to_csv())))
    if float(lines[board.rows.index(row)]["step_time_s"]) != row.step_time_s:
        yield "CSV says something else than the rows"
    if not math.isclose(sum(row.breakdown_s.values()), row.step_time_s, rel_tol=1e-9):
        yield "parts do not add up to the step"
    launch = Launch(
        strategy=row.strategy,
        model=setting.context.model,
        workload=setting.context.workload,
        devices_per_node=setting.context.cluster.devices_per_node,
    )
    with contextlib.suppress(ForerunError):  # most formats know some strategies only
        for files in export(launch, setting.context, "all").files.values():
            try:
                read = import_texts(files, gpus=row.strategy.devices).strategy
            except RequestError as error:
                yield f"an exported file is not read: {error}"
                continue
            if (read.devices, read.tp, read.pp, read.cp, read.mbs) != (
                row.strategy.devices, row.strategy.tp, row.strategy.pp, row.strategy.cp, row.strategy.mbs,
            ):  # fmt: skip
                yield f"{row.strategy} was exported and read as {read}"


def slices(setting: Setting, board: Leaderboard, random: Random) -> Iterator[str]:
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


def better(cluster: Cluster, random: Random) -> tuple[str, Cluster]:
    """Return a change of a cluster that makes nothing worse."""
    device, factor = cluster.device, random.choice((1.01, 1.5, 2.0, 10.0))

    def with_device(**changes: object) -> Cluster:
        changed = dataclasses.replace(device, **changes)  # type: ignore[arg-type]  # values of the fields' types
        return dataclasses.replace(cluster, device=changed)

    peaks = {name: rate * factor for name, rate in device.peak_flops_per_s.items()}
    levels = tuple(
        dataclasses.replace(
            level, bytes_per_s=level.bytes_per_s * factor, port_bytes_per_s=level.port_bytes_per_s * factor
        )
        for level in cluster.levels
    )
    changes: dict[str, Callable[[], Cluster]] = {
        "flops": lambda: with_device(peak_flops_per_s=peaks),
        "memory rate": lambda: with_device(memory_bytes_per_s=device.memory_bytes_per_s * factor),
        "memory": lambda: with_device(memory_bytes=device.memory_bytes * factor),
        "links": lambda: dataclasses.replace(cluster, levels=levels),
    }
    what = random.choice(list(changes))
    return f"{factor:g} x {what}", changes[what]()


def monotony(setting: Setting, board: Leaderboard, random: Random) -> Iterator[str]:
    """Yield strategies that a better machine makes worse."""
    what, cluster = better(setting.context.cluster, random)
    strategies = [row.strategy for row in board.rows]
    before, after = (_scored(context, strategies) for context in (
        setting.context, dataclasses.replace(setting.context, cluster=cluster),
    ))  # fmt: skip
    for number, strategy in enumerate(strategies):
        slack = PIPELINE_SLACK if strategy.pp > 1 else ROUNDING
        if after[0][number] > before[0][number] * (1 + slack):
            yield f"{what}: {strategy} takes {after[0][number]} s, and {before[0][number]} s without"
        if before[1][number] and not after[1][number]:
            yield f"{what}: {strategy} does not fit any more"


def _scored(context: Context, strategies: list) -> tuple[np.ndarray, np.ndarray]:
    scores = score(context, table_of(strategies))
    return scores.step_time_s, scores.fits


def broken(request: Request, random: Random) -> list[str] | None:
    """Return the laws that the answers to a request break; None where it has no answer."""
    try:
        setting = resolve(request)
        board = search_request(setting)
    except (RequestError, NoAnswer):
        return None
    return [
        *agreements(setting, board, random),
        *slices(setting, board, random),
        *monotony(setting, board, random),
    ]


def run(*, cases: int, seed: int, minutes: float = 0.0) -> tuple[int, list[str]]:
    """Try random requests; returns how many had an answer, and what broke."""
    end_s = time.monotonic() + 60 * minutes if minutes else math.inf
    answered, found = 0, []
    for number in range(cases):
        if time.monotonic() > end_s:
            break
        random = Random(f"{seed}.{number}")
        request = random_request(random)
        laws = broken(request, random)
        answered += laws is not None
        found += [f"{law}  [{request}]" for law in laws or ()]
    return answered, found


def main() -> None:
    """Compare and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0)
    args = parser.parse_args()
    answered, found = run(cases=args.cases, seed=args.seed, minutes=args.minutes)
    print("\n".join(found))
    print(f"{answered} requests had an answer, {len(found)} broken laws")


if __name__ == "__main__":
    main()
