"""A sweep: the plan, the run directory, and that nothing finished is ever lost or done twice."""

import errno
import functools
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from forerun.search.cli import main
from forerun.search.exhaustive import Piece, Problem
from forerun.search.request import Request
from forerun.search.sweep import (
    Portions,
    RunDirectory,
    StorageError,
    SweepPiece,
    SweepPlan,
    Watch,
    read_plan,
    run_sweep,
)
from forerun.search.sweep import going as going_module
from forerun.search.sweep import journal as journal_module
from forerun.search.sweep import portions as portions_module
from forerun.search.sweep.plan import plan_of
from forerun.search.sweep.portions import search_piece
from forerun.search.workers import Choice
from forerun.search.workers.ray_tasks import QUIET
from forerun.search.workers.slicing import Cuts
from forerun.spaces.errors import RequestError

RESULTS = ("leaderboard.json", "leaderboard.csv", "pieces.csv")
PLAN = """\
models: [llama3-8b, llama3-70b]
clusters: [dgx-h100]
workloads: [{global_batch: 32, seq_len: 2048}, {global_batch: 32, seq_len: 2048, precision: fp8}]
budgets: [{gpus: 8}, {gpus: 16}]
axes: {mbs: 1, vpp: 1, recompute: [full]}
top: 2
"""
SERIAL = Choice(kind="serial")


@pytest.fixture
def plan(tmp_path: Path) -> SweepPlan:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return read_plan(path)


def results(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in RESULTS]


def fake(portions: Portions, piece: SweepPiece) -> dict[str, Any]:
    """A search that takes no time."""
    request = piece.request
    assert request.gpus is not None
    row = {"rank": 1, "strategy": "dp" + request.gpus, "gpus": int(request.gpus), "step_time_s": 1.0, "mfu": 0.1}
    return {"status": "done", "rows": [{**row, "tokens_per_s": 32.0 * request.seq_len, "marks": ["a", "b"]}]}


def searched(piece: SweepPiece) -> dict[str, Any]:
    """The record of a search that nobody cuts."""
    record = search_piece(Portions(whole_s=math.inf), piece)
    assert isinstance(record, dict)
    return record


class Counted:
    """``fake``, and what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def __call__(self, portions: Portions, piece: SweepPiece) -> dict[str, Any]:
        self.asked.append(piece.request)
        return fake(portions, piece)


def raising(portions: Portions, piece: SweepPiece) -> dict[str, Any]:
    if piece.request.precision == "fp8":
        raise ZeroDivisionError("no such rule")
    return fake(portions, piece)


def test_a_plan_is_a_product_in_canonical_order(plan: SweepPlan) -> None:
    asked = [(p.request.model, p.request.precision, p.request.gpus, p.request.framework) for p in plan.pieces]

    assert asked[:3] == [
        ("llama3-8b", None, "8", "megatron-lm"),
        ("llama3-8b", None, "16", "megatron-lm"),
        ("llama3-8b", "fp8", "8", "megatron-lm"),
    ]
    assert len({piece.key for piece in plan.pieces}) == 8
    assert [piece.number for piece in plan.pieces] == list(range(8))


def test_keys_are_the_same_in_every_process(tmp_path: Path, plan: SweepPlan) -> None:
    code = "import sys; from pathlib import Path; from forerun.search.sweep import read_plan; "
    code += "print(read_plan(Path(sys.argv[1])).digest)"
    command = [sys.executable, "-c", code, str(tmp_path / "plan.yaml")]
    digests = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert digests == {plan.digest}


def test_keys_name_the_content_of_files_and_not_their_names(tmp_path: Path) -> None:
    text = (resources.files("forerun.spaces.models") / "data" / "llama3-8b.yaml").read_text()
    assert "128256" in text
    fields: dict[str, Any] = {"workloads": [{"global_batch": 8, "seq_len": 128}], "budgets": [{"gpus": "8"}]}
    document = tmp_path / "ours.yaml"
    document.write_text(text)
    before = plan_of(models=[str(document)], clusters=["dgx-h100"], **fields)
    again = plan_of(models=[str(document)], clusters=["dgx-h100"], **fields)
    document.write_text(text.replace("128256", "32000"))
    after = plan_of(models=[str(document)], clusters=["dgx-h100"], **fields)

    assert before.digest == again.digest != after.digest


@pytest.mark.parametrize(
    "change,law",
    [
        (("llama3-8b,", "llama3-8,"), "did you mean llama3-8b"),
        (("dgx-h100", "dgx-h1000"), "did you mean dgx-h100"),
        (("budgets:", "budget:"), "budgets"),
        (("gpus: 16", "gpus: 8"), "search 2 of the plan is search 1 again"),
        (("mbs: 1", "msb: 1"), "did you mean mbs"),
        (("{gpus: 16}", "{}"), "a budget names gpus, usd_per_hour or both, but one is empty"),
        (("{gpus: 16}", "{train_within: 30d}"), "but one has only train_within"),
        (("{gpus: 16}", "{gpus: 16, train_within: 30 years}"), "a time"),
        (("top: 2", "seeds: [1, 2]"), "seeds and evaluations are for a sampler"),
        (("top: 2", "per_stage: [layer]"), "did you mean layers"),
        (("top: 2", "sampler: locl"), "did you mean local"),
        (("top: 2", "sampler: local\nobjective: throughput,gpus"), "a sampler looks for one objective"),
        (("top: 2", "sampler: local\nseeds: []"), "seeds must have at least one entry"),
        (("[llama3-8b, llama3-70b]", "[]"), "models must have at least one entry"),
        (("top: 2", "objective: fastest"), "unknown objective"),
    ],
)
def test_a_wrong_plan_is_refused_before_anything_runs(tmp_path: Path, change: tuple[str, str], law: str) -> None:
    path = tmp_path / "plan.yaml"
    assert change[0] in PLAN
    path.write_text(PLAN.replace(*change))

    with pytest.raises(RequestError, match=law):
        read_plan(path)


def test_every_kind_of_workers_gives_the_same_bytes(tmp_path: Path, plan: SweepPlan) -> None:
    run_sweep(plan, tmp_path / "one", workers=SERIAL)
    found = run_sweep(plan, tmp_path / "two", workers=Choice(kind="processes", count=2))

    assert results(tmp_path / "one") == results(tmp_path / "two")
    assert found.counts["done"] > 0
    # A row of the sweep is the row of the search.
    first = next(entry for entry in found.document["leaderboard"] if entry["search"] == 1 and entry["rank"] == 1)
    alone = searched(plan.pieces[0])["rows"][0]
    assert {name: first[name] for name in alone} == json.loads(json.dumps(alone))


def test_the_leaderboard_ranks_across_searches(tmp_path: Path, plan: SweepPlan) -> None:
    board = run_sweep(plan, tmp_path / "run", workers=SERIAL).document["leaderboard"]

    assert [entry["place"] for entry in board] == list(range(1, len(board) + 1))
    speeds = [entry["tokens_per_s"] for entry in board]
    assert speeds == sorted(speeds, reverse=True)
    assert len({entry["model"] for entry in board}) == 2


@pytest.mark.parametrize("seed", range(5))
def test_any_cut_of_the_records_is_made_good(tmp_path: Path, plan: SweepPlan, seed: int) -> None:
    run_sweep(plan, tmp_path / "whole", workers=SERIAL, search=fake)
    run_sweep(plan, tmp_path / "cut", workers=SERIAL, search=fake)
    records = tmp_path / "cut" / "pieces.jsonl"
    content = records.read_bytes()
    left = content[: random.Random(seed).randrange(len(content))]
    records.write_bytes(left)
    for name in RESULTS:
        (tmp_path / "cut" / name).unlink()
    counted = Counted()
    found = run_sweep(plan, tmp_path / "cut", resume=True, workers=SERIAL, search=counted)

    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    assert found.skipped == left.count(b"\n")
    assert len(counted.asked) == len(plan.pieces) - left.count(b"\n")


def test_a_damaged_record_in_the_middle_is_refused(tmp_path: Path, plan: SweepPlan) -> None:
    run_sweep(plan, tmp_path / "run", workers=SERIAL, search=fake)
    records = tmp_path / "run" / "pieces.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join([lines[0], lines[1][:20] + b"\n", *lines[2:]]))

    with pytest.raises(RequestError, match="line 2: not a record"):
        run_sweep(plan, tmp_path / "run", resume=True, workers=SERIAL, search=fake)


def test_what_failed_is_said_and_done_again(tmp_path: Path, plan: SweepPlan) -> None:
    folder = tmp_path / "run"
    found = run_sweep(plan, folder, workers=SERIAL, search=raising)
    failed = [search for search in found.document["searches"] if search["status"] == "failed"]
    counted = Counted()
    mended = run_sweep(plan, folder, resume=True, workers=SERIAL, search=counted)
    run_sweep(plan, tmp_path / "whole", workers=SERIAL, search=fake)

    assert found.counts == {"done": 4, "infeasible": 0, "refused": 0, "failed": 4}
    assert {search["message"] for search in failed} == {"ZeroDivisionError: no such rule"}
    assert [request.precision for request in counted.asked] == ["fp8"] * 4
    assert mended.counts["failed"] == 0
    assert results(folder) == results(tmp_path / "whole")


def test_a_full_disk_is_said_and_loses_nothing(
    tmp_path: Path, plan: SweepPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real = tmp_path / "run", os.write
    left = [3000]

    def write(descriptor: int, data: bytes) -> int:
        part = data[: left[0]]
        left[0] -= len(part)
        if not part:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, part)

    with monkeypatch.context() as patched:
        patched.setattr(journal_module.os, "write", write)
        with pytest.raises(
            StorageError, match=r"pieces\.jsonl: No space left on device; \d finished searches are kept"
        ):
            run_sweep(plan, folder, workers=SERIAL)
    kept = (folder / "pieces.jsonl").read_bytes()
    found = run_sweep(plan, folder, resume=True, workers=SERIAL)
    run_sweep(plan, tmp_path / "whole", workers=SERIAL)

    assert kept.endswith(b"\n") and 0 < kept.count(b"\n") < len(plan.pieces)
    assert found.skipped == kept.count(b"\n")
    assert results(folder) == results(tmp_path / "whole")


def _other_inputs(folder: Path, plan: SweepPlan) -> SweepPlan:
    return SweepPlan(pieces=plan.pieces[:-1], objective=plan.objective)


def _other_objective(folder: Path, plan: SweepPlan) -> SweepPlan:
    return SweepPlan(pieces=plan.pieces, objective="gpus")


def _other_model_of_cost(folder: Path, plan: SweepPlan) -> SweepPlan:
    manifest = folder / "sweep.json"
    document = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**document, "cost_model": "0" * 16}))
    return plan


def _no_manifest(folder: Path, plan: SweepPlan) -> SweepPlan:
    (folder / "sweep.json").unlink()
    return plan


def _broken_manifest(folder: Path, plan: SweepPlan) -> SweepPlan:
    (folder / "sweep.json").write_text("{}")
    return plan


@pytest.mark.parametrize(
    "change,law",
    [
        (_other_inputs, r"other inputs \(8 searches there, 7 here\)"),
        (_other_objective, "other inputs"),
        (_other_model_of_cost, "another version of the cost model"),
        (_no_manifest, "is not empty and holds no sweep"),
        (_broken_manifest, "is not a sweep's"),
    ],
)
def test_another_directory_is_refused(
    tmp_path: Path, plan: SweepPlan, change: Callable[[Path, SweepPlan], SweepPlan], law: str
) -> None:
    run_sweep(plan, tmp_path / "run", workers=SERIAL, search=fake)
    plan = change(tmp_path / "run", plan)

    with pytest.raises(RequestError, match=law):
        run_sweep(plan, tmp_path / "run", resume=True, workers=SERIAL, search=fake)


def test_a_directory_is_not_overwritten_or_shared(tmp_path: Path, plan: SweepPlan) -> None:
    with RunDirectory(tmp_path / "run", plan, resume=True):
        with pytest.raises(RequestError, match="another sweep is running"):
            run_sweep(plan, tmp_path / "run", resume=True, workers=SERIAL, search=fake)
    with pytest.raises(RequestError, match="--resume"):
        run_sweep(plan, tmp_path / "run", workers=SERIAL, search=fake)
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot write"):
        run_sweep(plan, tmp_path / "file", workers=SERIAL, search=fake)


TINY = Portions(whole_s=0.0, part_s=0.02, first=400)
"""Cuts every search of ``PLAN`` into many parts."""


class SameCuts(Cuts):
    """Cuts parts of one width, whatever they take."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**fields, "width": TINY.first, "workers": 1})

    def steer(self, low: int, high: int, seconds: float) -> None:
        """Stay."""


@pytest.mark.parametrize("workers", [SERIAL, Choice(kind="processes", count=2)], ids=lambda choice: choice.kind)
@pytest.mark.parametrize("objective", ["cost", "throughput,headroom,gpus"])
def test_parts_of_a_long_search_give_the_same_bytes(
    tmp_path: Path, workers: Choice, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(f"{PLAN}objective: {objective}\n".replace("seq_len: 2048}", "seq_len: 2048, tokens: 100G}"))
    path.write_text(path.read_text().replace("{gpus: 16}", "{gpus: 8..16, train_within: 9d}"))
    plan = read_plan(path)
    shares: list[float] = []

    class Seen(Watch):
        def advanced(self, piece: SweepPiece, share: float) -> None:
            shares.append(share)

    run_sweep(plan, tmp_path / "whole", workers=SERIAL)
    monkeypatch.setattr(going_module, "Cuts", SameCuts)
    run_sweep(plan, tmp_path / "parts", workers=workers, portions=TINY, watch=Seen())

    assert len(shares) > 2 * len(plan.pieces)
    assert sum(share == 1.0 for share in shares) > 0
    assert results(tmp_path / "parts") == results(tmp_path / "whole")
    assert (tmp_path / "whole" / "parts.jsonl").read_bytes() == b""


def test_a_resumed_search_leaves_out_the_parts_on_disk(
    tmp_path: Path, plan: SweepPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sweep(plan, tmp_path / "whole", workers=SERIAL)
    folder, real, walked = tmp_path / "run", portions_module.search_slice, list[tuple[int, int]]()

    def interrupted(problem: Problem, low: int, high: int) -> Piece:
        walked.append((low, high))
        if len(walked) == 6:
            raise KeyboardInterrupt
        return real(problem, low, high)

    monkeypatch.setattr(portions_module, "search_slice", interrupted)
    monkeypatch.setattr(going_module, "Cuts", SameCuts)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan, folder, workers=SERIAL, portions=TINY)
    kept = [json.loads(line) for line in (folder / "parts.jsonl").read_text().splitlines()]
    run_sweep(plan, folder, resume=True, workers=SERIAL, portions=TINY)

    assert len({part["key"] for part in kept}) == 1 and len(kept) == 5
    first = [span for span in walked[:5] + walked[6:] if span[1] <= kept[0]["size"]]
    before_the_second_search = first[: first.index((0, TINY.first), 1)]
    assert sum(high - low for low, high in before_the_second_search) == kept[0]["size"]  # each candidate once
    assert results(folder) == results(tmp_path / "whole")


def test_a_part_that_raises_fails_its_search_alone(
    tmp_path: Path, plan: SweepPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sweep(plan, tmp_path / "whole", workers=SERIAL)
    real = portions_module.search_slice

    def broken(problem: Problem, low: int, high: int) -> Piece:
        if low and problem.space.context.workload.precision == "fp8":
            raise ZeroDivisionError("no such rule")
        return real(problem, low, high)

    with monkeypatch.context() as patched:
        patched.setattr(portions_module, "search_slice", broken)
        found = run_sweep(plan, tmp_path / "run", workers=SERIAL, portions=TINY)
    failed = [search for search in found.document["searches"] if search["status"] == "failed"]
    run_sweep(plan, tmp_path / "run", resume=True, workers=SERIAL, portions=TINY)

    assert [search["message"] for search in failed] == ["ZeroDivisionError: no such rule"] * 4
    assert found.counts["failed"] == 4 and found.counts["infeasible"] + found.counts["done"] == 4
    assert results(tmp_path / "run") == results(tmp_path / "whole")


def test_parts_that_overlap_are_refused(tmp_path: Path, plan: SweepPlan) -> None:
    folder = tmp_path / "run"
    run_sweep(plan, folder, workers=SERIAL, portions=TINY)
    (folder / "pieces.jsonl").unlink()
    parts = (folder / "parts.jsonl").read_text().splitlines(keepends=True)
    moved = json.loads(parts[1])
    (folder / "parts.jsonl").write_text("".join([parts[0], json.dumps({**moved, "low": moved["low"] - 1}) + "\n"]))

    with pytest.raises(RequestError, match="parts of search 1 overlap"):
        run_sweep(plan, folder, resume=True, workers=SERIAL)


def test_samplers_search_each_combination_once_per_seed(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    axes = "axes: {mbs: 1, vpp: 1, tp: [1, 2], recompute: [full], schedule: [1f1b]}"
    path.write_text(
        f"models: llama3-8b\nclusters: dgx-h100\nworkloads: [{{global_batch: 16, seq_len: 2048}}]\n{axes}\n"
        "budgets: [{gpus: 8}]\ntop: 3\nper_stage: [layers]\nsampler: local\nseeds: [0, 1]\nevaluations: 200\n"
    )
    plan = read_plan(path)
    found = run_sweep(plan, tmp_path / "one", workers=SERIAL)
    run_sweep(plan, tmp_path / "two", workers=Choice(kind="processes", count=2))
    strategies = [entry["strategy"] for entry in found.document["leaderboard"]]

    assert [piece.exploring.seed for piece in plan.pieces if piece.exploring] == [0, 1]
    assert [(search["sampler"], search["seed"]) for search in found.document["searches"]] == [
        ("local", 0),
        ("local", 1),
    ]
    assert any("sampler local (as asked)" in note for note in found.document["searches"][0]["notes"])
    assert len(strategies) == len(set(strategies)) >= 3
    assert results(tmp_path / "one") == results(tmp_path / "two")


def test_a_limit_that_nothing_keeps_is_infeasible_and_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    text = PLAN.replace("seq_len: 2048}", "seq_len: 2048, tokens: 100T}").replace(
        "gpus: 8}", "gpus: 8, train_within: 1d}"
    )
    path.write_text(text)
    found = run_sweep(read_plan(path), tmp_path / "run", workers=SERIAL)
    first = found.document["searches"][0]

    assert first["status"] == "infeasible"
    assert first["message"].startswith("no strategy trains 100T tokens within 1")


def logged(portions: Portions, piece: SweepPiece, log: Path) -> Any:
    with open(log, "a") as stream:
        stream.write(f"{piece.number} 0\n")
    return search_piece(portions, piece)


def drive(plan: Path, folder: Path, log: Path) -> None:
    """A driver that writes down whatever it begins."""
    real = portions_module.search_slice

    def search_slice(problem: Problem, low: int, high: int) -> Piece:
        if low:
            with open(log, "a") as stream:
                stream.write(f"part {low}\n")
        return real(problem, low, high)

    portions_module.search_slice = search_slice
    search = functools.partial(logged, log=log)
    run_sweep(read_plan(plan), folder, resume=True, workers=SERIAL, portions=TINY, search=search)


@pytest.mark.slow  # twenty drivers are started and killed
def test_kill_at_twenty_random_points(tmp_path: Path, plan: SweepPlan) -> None:
    run_sweep(plan, tmp_path / "whole", workers=SERIAL)
    context, draw = multiprocessing.get_context("forkserver"), random.Random(5)
    context.set_forkserver_preload(["forerun.search.sweep", "pydantic", "pytest"])
    kills = rounds = 0
    while kills < 20:
        rounds += 1
        folder, log = tmp_path / f"run{rounds}", tmp_path / f"log{rounds}"
        log.touch()
        killed, ended = 0, False
        while not ended:
            size = log.stat().st_size
            process = context.Process(target=drive, args=(tmp_path / "plan.yaml", folder, log))
            process.start()
            while process.is_alive() and log.stat().st_size == size:
                time.sleep(0.002)
            time.sleep(draw.uniform(0.0, 0.1))
            process.kill()
            process.join()
            ended = process.exitcode == 0
            assert process.exitcode in (0, -signal.SIGKILL)
            killed += not ended
        kills += killed
        begun = log.read_text().count("\n")
        done = [json.loads(line) for line in (folder / "parts.jsonl").read_text().splitlines()]

        assert results(folder) == results(tmp_path / "whole")
        assert _records(folder) == len(plan.pieces)
        assert len({(part["key"], part["low"]) for part in done}) == len(done)
        # Only what was in flight when a driver was killed has been begun twice.
        assert len(done) <= begun <= len(done) + killed


class RemovesANode(Watch):
    """Takes a node of a Ray cluster away, without warning, after some searches and once both nodes have begun one."""

    def __init__(self, remove: Callable[[], None], log: Path) -> None:
        self.remove, self.ends, self.log, self.removed = remove, 0, log, False

    def ended(self, piece: SweepPiece, record: dict[str, Any]) -> None:
        self.ends += 1
        if not self.removed and self.ends >= 4 and len(nodes_of(self.log)) == 2:
            self.removed = True
            self.remove()


def nodes_of(log: Path) -> set[str]:
    """Return the nodes that have begun a search."""
    return {line.split()[0] for line in log.read_text().splitlines()} if log.exists() else set()


def slow_and_signed(portions: Portions, piece: SweepPiece, log: Path) -> Any:
    """A search long enough to be hit, which leaves behind on which node it was begun."""
    import ray

    with open(log, "a") as stream:
        stream.write(f"{ray.get_runtime_context().get_node_id()} {piece.number}\n")
    time.sleep(0.3)
    return search_piece(portions, piece)


@pytest.mark.ray
@pytest.mark.slow  # two Ray nodes are started
def test_a_ray_node_that_goes_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    # The cluster below asks for no token, and a driver that shows one is not understood by its nodes.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from ray.cluster_utils import Cluster

    path, log = tmp_path / "plan.yaml", tmp_path / "log"
    path.write_text(PLAN.replace("{gpus: 8}, ", "{gpus: 8}, {gpus: 32}, {gpus: 64}, "))
    plan = read_plan(path)
    run_sweep(plan, tmp_path / "whole", workers=SERIAL)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        watch = RemovesANode(lambda: cluster.remove_node(node, allow_graceful=False), log)
        found = run_sweep(
            plan,
            tmp_path / "run",
            workers=Choice(kind="ray", address=cluster.address),
            watch=watch,
            search=functools.partial(slow_and_signed, log=log),
        )
    finally:
        cluster.shutdown()
    begun = [line.split() for line in log.read_text().splitlines()]

    assert found.workers.startswith("by Ray on 2 CPUs")
    if not watch.removed:
        pytest.skip("Ray gave every search to one node")
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert _records(tmp_path / "run") == len(plan.pieces) == 16
    assert 16 <= len(begun) <= 16 + 2  # only what the lost node had was begun again


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["serial", "processes"])
def test_kill_at_random_points(tmp_path: Path, plan: SweepPlan, workers: str) -> None:
    run_sweep(plan, tmp_path / "whole", workers=SERIAL)
    folder, draw = tmp_path / "run", random.Random(workers)
    command = [sys.executable, "-m", "forerun.search", "sweep", str(tmp_path / "plan.yaml"), "--resume"]
    command += ["--out", str(folder), "--workers", workers]
    kills = 0
    for wanted in sorted(draw.sample(range(len(plan.pieces)), 2)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and _records(folder) < wanted:
            time.sleep(0.005)
        time.sleep(draw.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    keys = [json.loads(line)["key"] for line in (folder / "pieces.jsonl").read_text().splitlines()]

    assert kills
    assert results(folder) == results(tmp_path / "whole")
    assert len(keys) == len(set(keys)) == len(plan.pieces)
    assert f"{len(plan.pieces)} searches" in done.stdout


def _records(folder: Path) -> int:
    path = folder / "pieces.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_the_command_line(tmp_path: Path, plan: SweepPlan, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["sweep", str(tmp_path / "plan.yaml"), "--out", str(tmp_path / "run"), "--workers", "serial"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert main([*command, "--resume", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(command) == 2

    assert "[8/8] llama3-70b on dgx-h100, search 8:" in shown.err
    assert document["leaderboard"][0]["strategy"] in " ".join(shown.out.split())
    assert document == json.loads((tmp_path / "run" / "leaderboard.json").read_text())


def test_nothing_feasible_anywhere_ends_with_its_code(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN.replace("[llama3-8b, llama3-70b]", "llama3-405b").replace("{gpus: 8}, ", ""))

    assert main(["sweep", str(path), "--out", str(tmp_path / "run"), "--workers", "serial"]) == 3
