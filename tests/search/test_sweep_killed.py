"""Sweeps whose driver, workers or nodes are killed lose nothing that was finished."""

import functools
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sweep_cases
from sweep_cases import PLAN, SERIAL, TINY, records, results

from forerun.search.explore.flat.exhaustive import Problem, SliceResult
from forerun.search.sweep import ChunkTimes, SweepPlan, SweepSearch, Watch, read_plan, run_sweep
from forerun.search.sweep import chunks as chunks_module
from forerun.search.sweep.chunks import search_piece
from forerun.search.workers import Choice
from forerun.search.workers.ray_cluster import QUIET


def logged(chunk_times: ChunkTimes, piece: SweepSearch, log: Path) -> Any:
    with open(log, "a") as stream:
        stream.write(f"{piece.number} 0\n")
    return search_piece(chunk_times, piece)


def drive(plan: Path, folder: Path, log: Path) -> None:
    """A driver that writes down whatever it begins."""
    real = chunks_module.search_slice

    def search_slice(problem: Problem, low: int, high: int) -> SliceResult:
        if low:
            with open(log, "a") as stream:
                stream.write(f"part {low}\n")
        return real(problem, low, high)

    chunks_module.search_slice = search_slice
    search = functools.partial(logged, log=log)
    run_sweep(read_plan(plan), folder, resume=True, workers=SERIAL, chunk_times=TINY, search=search)


@pytest.mark.slow  # ten drivers are started and killed
def test_kill_at_ten_random_points(tmp_path: Path, plan: SweepPlan, undisturbed: list[bytes]) -> None:
    context, draw = multiprocessing.get_context("forkserver"), random.Random(5)
    context.set_forkserver_preload(["forerun.search.sweep", "pydantic", "pytest"])
    kills = rounds = 0
    while kills < 10:
        rounds += 1
        folder, log = tmp_path / f"run{rounds}", tmp_path / f"log{rounds}"
        log.touch()
        killed, ended = 0, False
        while not ended:
            size = log.stat().st_size
            process = context.Process(target=drive, args=(tmp_path / "plan.yaml", folder, log))
            process.start()
            if kills + killed < 10:  # the last is left to end: on a busy machine none might get to the end of a part
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

        assert results(folder) == undisturbed
        assert records(folder) == len(plan.pieces)
        assert len({(part["key"], part["low"]) for part in done}) == len(done)
        # Only what was in flight when a driver was killed has been begun twice.
        assert len(done) <= begun <= len(done) + killed


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["serial", "processes"])
def test_kill_at_random_points(tmp_path: Path, plan: SweepPlan, undisturbed: list[bytes], workers: str) -> None:
    folder, draw = tmp_path / "run", random.Random(workers)
    command = [sys.executable, "-m", "forerun.search", "sweep", str(tmp_path / "plan.yaml"), "--resume"]
    command += ["--out", str(folder), "--workers", workers]
    kills = 0
    for wanted in sorted(draw.sample(range(len(plan.pieces)), 2)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and records(folder) < wanted:
            time.sleep(0.005)
        time.sleep(draw.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    keys = [json.loads(line)["key"] for line in (folder / "pieces.jsonl").read_text().splitlines()]

    assert kills
    assert results(folder) == undisturbed
    assert len(keys) == len(set(keys)) == len(plan.pieces)
    assert f"{len(plan.pieces)} searches" in done.stdout


class RemovesANode(Watch):
    """Takes a node of a Ray cluster away, without warning, after some searches and once both nodes have begun one."""

    def __init__(self, remove: Callable[[], None], log: Path) -> None:
        self.remove, self.ends, self.log, self.removed = remove, 0, log, False

    def ended(self, piece: SweepSearch, record: dict[str, Any]) -> None:
        self.ends += 1
        if not self.removed and self.ends >= 4 and len(nodes_of(self.log)) == 2:
            self.removed = True
            self.remove()


def nodes_of(log: Path) -> set[str]:
    """Return the nodes that have begun a search."""
    return {line.split()[0] for line in log.read_text().splitlines()} if log.exists() else set()


def slow_and_signed(chunk_times: ChunkTimes, piece: SweepSearch, log: Path) -> Any:
    """A search long enough to be hit, which leaves behind on which node it was begun.

    The first waits for the other node's: where cores are few its worker may start after all searches are done.
    """
    import ray

    with open(log, "a") as stream:
        stream.write(f"{ray.get_runtime_context().get_node_id()} {piece.number}\n")
    patience = time.monotonic() + (30 if log.read_text().count("\n") == 1 else 0)
    while len(nodes_of(log)) < 2 and time.monotonic() < patience:
        time.sleep(0.05)
    time.sleep(0.3)
    return search_piece(chunk_times, piece)


@pytest.mark.ray
@pytest.mark.slow  # two Ray nodes are started
def test_a_ray_node_that_goes_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The cluster below asks for no token, and a driver that shows one is not understood by its nodes.
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    # Its workers are handed a function of this file, which imports ``sweep_cases``.
    monkeypatch.setenv("PYTHONPATH", str(Path(sweep_cases.__file__).parent), prepend=os.pathsep)
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
    assert records(tmp_path / "run") == len(plan.pieces) == 16
    assert 16 <= len(begun) <= 16 + 2  # only what the lost node had was begun again
