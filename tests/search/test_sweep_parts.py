"""Long searches of a sweep in parts: the same bytes, and only parts that are not on disk are enumerated again."""

import json
import os
from pathlib import Path

import pytest
from sweep_cases import PLAN, SERIAL, TINY, SameCuts, fake, results

from forerun.search.explore.flat.exhaustive import Problem, SliceResult
from forerun.search.files.journal import Journal
from forerun.search.sweep import SweepPlan, SweepSearch, Watch, read_plan, run_sweep
from forerun.search.sweep import chunks as chunks_module
from forerun.search.sweep import progress as progress_module
from forerun.search.workers import Choice
from forerun.spaces.errors import RequestError


@pytest.mark.slow  # a long search, whole and in parts
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
        def advanced(self, piece: SweepSearch, share: float) -> None:
            shares.append(share)

    run_sweep(plan, tmp_path / "whole", workers=SERIAL)
    monkeypatch.setattr(progress_module, "Cuts", SameCuts)
    run_sweep(plan, tmp_path / "parts", workers=workers, chunk_times=TINY, watch=Seen())

    assert len(shares) > 2 * len(plan.pieces)
    assert sum(share == 1.0 for share in shares) > 0
    assert results(tmp_path / "parts") == results(tmp_path / "whole")
    assert (tmp_path / "whole" / "parts.jsonl").read_bytes() == b""


@pytest.mark.slow  # a search of many parts
def test_a_resumed_search_leaves_out_the_parts_on_disk(
    tmp_path: Path, plan: SweepPlan, undisturbed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real, enumerated = tmp_path / "run", chunks_module.search_slice, list[tuple[int, int]]()

    def interrupted(problem: Problem, low: int, high: int) -> SliceResult:
        enumerated.append((low, high))
        if len(enumerated) == 6:
            raise KeyboardInterrupt
        return real(problem, low, high)

    monkeypatch.setattr(chunks_module, "search_slice", interrupted)
    monkeypatch.setattr(progress_module, "Cuts", SameCuts)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan, folder, workers=SERIAL, chunk_times=TINY)
    kept = [json.loads(line) for line in (folder / "parts.jsonl").read_text().splitlines()]
    run_sweep(plan, folder, resume=True, workers=SERIAL, chunk_times=TINY)

    assert len({part["key"] for part in kept}) == 1 and len(kept) == 5
    first = [span for span in enumerated[:5] + enumerated[6:] if span[1] <= kept[0]["size"]]
    before_the_second_search = first[: first.index((0, TINY.first), 1)]
    assert sum(high - low for low, high in before_the_second_search) == kept[0]["size"]  # each candidate once
    assert results(folder) == undisturbed


@pytest.mark.slow  # a search of many parts
def test_a_part_that_raises_fails_its_search_alone(
    tmp_path: Path, plan: SweepPlan, undisturbed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = chunks_module.search_slice

    def broken(problem: Problem, low: int, high: int) -> SliceResult:
        if low and problem.space.context.workload.precision == "fp8":
            raise ZeroDivisionError("no such rule")
        return real(problem, low, high)

    with monkeypatch.context() as patched:
        patched.setattr(chunks_module, "search_slice", broken)
        found = run_sweep(plan, tmp_path / "run", workers=SERIAL, chunk_times=TINY)
    failed = [search for search in found.document["searches"] if search["status"] == "failed"]
    run_sweep(plan, tmp_path / "run", resume=True, workers=SERIAL, chunk_times=TINY)

    assert [search["message"] for search in failed] == ["ZeroDivisionError: no such rule"] * 4
    assert found.counts["failed"] == 4 and found.counts["infeasible"] + found.counts["done"] == 4
    assert results(tmp_path / "run") == undisturbed


@pytest.mark.slow
def test_parts_that_overlap_are_refused(tmp_path: Path, plan: SweepPlan) -> None:
    folder = tmp_path / "run"
    run_sweep(plan, folder, workers=SERIAL, chunk_times=TINY)
    (folder / "pieces.jsonl").unlink()
    parts = (folder / "parts.jsonl").read_text().splitlines(keepends=True)
    second = json.loads(parts[1])
    del second["sum"]
    journal = Journal(folder / "parts.jsonl", frozenset())
    found = {**second["found"], "enumerated": second["found"]["enumerated"] + 1}
    journal.append({**second, "low": second["low"] - 1, "found": found})
    journal.close()

    with pytest.raises(RequestError, match="parts of search 1 overlap"):
        run_sweep(plan, folder, resume=True, workers=SERIAL)


def test_records_that_were_changed_are_no_records(tmp_path: Path, plan: SweepPlan) -> None:
    folder = tmp_path / "run"
    run_sweep(plan, folder, workers=SERIAL, search=fake)
    path = folder / "pieces.jsonl"
    whole = path.read_text()
    path.write_text(whole.replace('"step_time_s":1.0', '"step_time_s":0.5', 1))
    with pytest.raises(RequestError, match=r"pieces\.jsonl, line 1: not a record"):
        run_sweep(plan, folder, resume=True, workers=SERIAL, search=fake)

    path.write_text("")
    journal = Journal(path, frozenset())
    for key, value in (("rows", [{"rank": 1}]), ("why", 3), ("space", {"size": -1}), ("status", "well"), ("rows", 5)):
        first = json.loads(whole.splitlines()[0])
        del first["sum"]
        os.truncate(path, 0)
        journal.append({**first, key: value})
        with pytest.raises(RequestError, match="that no search leaves behind"):
            run_sweep(plan, folder, resume=True, workers=SERIAL, search=fake)
    journal.close()
