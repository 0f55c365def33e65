"""Where a search over stages that differ starts (flat winners, heuristics, earlier results), and what stops it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forerun.search.answer.searches import explore_request
from forerun.search.cli import main
from forerun.search.explore.samplers import Exploring
from forerun.search.explore.samplers.registry import PER_STAGE
from forerun.search.explore.samplers.warm_starts import heuristic_starts
from forerun.search.request.request import Request
from forerun.search.request.setting import Setting
from forerun.simulator import score
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import table_of
from forerun.spaces.strategies.staged_space import StagedSpace


def test_heuristic_starts_are_legal_and_fit_somewhere(make_setting: Callable[..., Setting]) -> None:
    space = StagedSpace(flat=make_setting(model="llama3-70b", gpus="128", global_batch=1024).space())
    found = heuristic_starts(space)

    assert 10 < len(found) <= 64 and space.legal(found).all()
    assert score(space.context, table_of(found)).fits.any()
    assert all(strategy.tp <= 8 for strategy in found)


def small(**fields: Any) -> Request:
    known = {"cluster": "dgx-h100", "gpus": "16", "global_batch": 64, "seq_len": 4096}
    return Request(model="llama3-8b", **{**known, **fields})


@pytest.mark.slow
def test_results_of_an_earlier_search_are_started_from(tmp_path: Path) -> None:
    command = "search llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 4096 --set mbs=1".split()
    staged = [*command, "--per-stage", ",".join(PER_STAGE), "--evaluations", "60", "--json"]
    assert main([*staged, "--out", str(tmp_path / "one")]) == 0
    best = json.loads((tmp_path / "one" / "best.json").read_text())
    first = json.loads((tmp_path / "one" / "leaderboard.json").read_text())
    starts = (str(tmp_path / "one"), "tp2 pp4 dp2 mbs1 recompute=full:2,none*3")
    board = explore_request(
        small(overrides={"mbs": [1]}), exploring=Exploring(per_stage=PER_STAGE, starts=starts, evaluations=30)
    )

    assert best["strategy"] == first["leaderboard"][0]["strategy"]
    assert best["step_time_s"] == first["leaderboard"][0]["step_time_s"]
    assert first["request"]["per_stage"] == list(PER_STAGE)
    assert board.rows[0].step_time_s <= best["step_time_s"]
    assert any("are in this space and used as starts" in note for note in board.notes)


@pytest.mark.parametrize(
    "start,law",
    [
        ("tp2 pp2 dp4 mbs1 vpp3", "is not legal"),
        ("nowhere.json", "nowhere.json: no such file"),
        ("tests", "has no leaderboard.json or best.json"),
        ("pyproject.toml", "is not a result of a search"),
    ],
)
def test_what_cannot_be_started_from_is_said(start: str, law: str, request: pytest.FixtureRequest) -> None:
    path = request.config.rootpath / start
    with pytest.raises(RequestError, match=law):
        explore_request(small(), exploring=Exploring(starts=(str(path) if path.exists() else start,)))


def test_a_start_outside_of_the_space_is_noted() -> None:
    exploring = Exploring(starts=("tp2 pp4 dp2 mbs2",), evaluations=20)
    board = explore_request(small(overrides={"mbs": [1]}), exploring=exploring)

    assert "tp2 pp4 dp2 mbs2 is outside the search space and is not used as a start" in board.notes


@pytest.mark.slow
def test_stagnation_and_time_stop_it() -> None:
    request = small(overrides={"mbs": [1]})
    slow = explore_request(request, exploring=Exploring(per_stage=PER_STAGE, stagnation=40))
    late = explore_request(request, exploring=Exploring(per_stage=PER_STAGE, seconds=1e-6))

    assert any("40 strategies brought nothing better" in note for note in slow.notes)
    assert any("0 strategies scored, stopped because 0 s were over" in note for note in late.notes) or late.rows
