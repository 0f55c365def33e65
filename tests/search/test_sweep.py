"""A sweep: the same bytes from any workers, ranked across searches, as a command."""

import json
from pathlib import Path
from typing import Any

import pytest
from sweep_cases import PLAN, SERIAL, fake, results, searched

from forerun.search.cli import main
from forerun.search.request.interrupts import EndedEarly, Stopped
from forerun.search.sweep import ChunkTimes, SweepPlan, SweepSearch, read_plan, run_sweep
from forerun.search.workers import Choice


@pytest.mark.slow  # the sweep once for each kind
def test_every_kind_of_workers_gives_the_same_bytes(tmp_path: Path, plan: SweepPlan, undisturbed: list[bytes]) -> None:
    found = run_sweep(plan, tmp_path / "two", workers=Choice(kind="processes", count=2))

    assert results(tmp_path / "two") == undisturbed
    assert found.counts["done"] > 0
    # A row of the sweep is the row of the search.
    first = next(entry for entry in found.document["leaderboard"] if entry["search"] == 1 and entry["rank"] == 1)
    alone = searched(plan.pieces[0])["rows"][0]
    assert {name: first[name] for name in alone} == json.loads(json.dumps(alone))


@pytest.mark.slow
def test_the_leaderboard_ranks_across_searches(tmp_path: Path, plan: SweepPlan) -> None:
    board = run_sweep(plan, tmp_path / "run", workers=SERIAL).document["leaderboard"]

    assert [entry["place"] for entry in board] == list(range(1, len(board) + 1))
    speeds = [entry["tokens_per_s"] for entry in board if entry["rank"] == 1]
    assert speeds == sorted(speeds, reverse=True)
    for search in {entry["search"] for entry in board}:  # a row that is faster and riskier does not overtake
        ranks = [entry["rank"] for entry in board if entry["search"] == search]
        assert ranks == sorted(ranks)
    assert len({entry["model"] for entry in board}) == 2


def test_a_sweep_that_is_stopped_returns_what_has_ended_and_goes_on(tmp_path: Path, plan: SweepPlan) -> None:
    """Ctrl-C in the second search: the first is the answer, and the rest comes with the next run."""
    begun = []

    def stopped(chunk_times: ChunkTimes, piece: SweepSearch) -> dict[str, Any]:
        begun.append(piece)
        if len(begun) == 2:
            raise Stopped
        return fake(chunk_times, piece)

    with pytest.raises(EndedEarly) as stop:
        run_sweep(plan, tmp_path / "run", workers=SERIAL, search=stopped)
    found = stop.value.found
    assert [search["search"] for search in found.document["searches"]] == [1]
    assert found.document["leaderboard"][0]["search"] == 1
    assert found.remarks == (f"interrupted after 1 of {len(plan.pieces)} searches: --resume continues",)
    assert not (tmp_path / "run" / "leaderboard.json").exists()

    whole = run_sweep(plan, tmp_path / "run", workers=SERIAL, resume=True, search=fake)
    assert (whole.skipped, whole.searched) == (1, len(plan.pieces) - 1)
    run_sweep(plan, tmp_path / "one", workers=SERIAL, search=fake)
    assert results(tmp_path / "one") == results(tmp_path / "run")


@pytest.mark.slow  # a sampler for each of many seeds
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


@pytest.mark.slow
def test_a_limit_that_nothing_keeps_is_infeasible_and_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    text = PLAN.replace("[llama3-8b, llama3-70b]", "llama3-8b")
    text = text.replace("seq_len: 2048}", "seq_len: 2048, tokens: 100T}").replace(
        "gpus: 8}", "gpus: 8, train_within: 1d}"
    )
    path.write_text(text)
    found = run_sweep(read_plan(path), tmp_path / "run", workers=SERIAL)
    first = found.document["searches"][0]

    assert first["status"] == "infeasible"
    assert first["message"].startswith("no strategy trains 100T tokens within 1")


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "of_each"), [("throughput", True), ("throughput,gpus", False)])
def test_the_table_has_the_best_of_each_search_and_of_fronts_all(
    objective: str, of_each: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "plan.yaml").write_text(f"{PLAN}objective: {objective}\n")
    folder = tmp_path / "run"
    assert main(["sweep", str(tmp_path / "plan.yaml"), "--out", str(folder), "--workers", "serial"]) == 0
    rows = json.loads((folder / "leaderboard.json").read_text())["leaderboard"]
    wanted = [row["place"] for row in rows if row["rank"] == 1 or not of_each]
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " on dgx-h100, " in line]

    assert [int(place) for place in shown if place.isdigit()] == wanted


@pytest.mark.slow
def test_nothing_feasible_anywhere_ends_with_its_code(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN.replace("[llama3-8b, llama3-70b]", "llama3-405b").replace("{gpus: 8}, ", ""))

    assert main(["sweep", str(path), "--out", str(tmp_path / "run"), "--workers", "serial"]) == 3
