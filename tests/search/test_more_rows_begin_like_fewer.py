"""``--top K`` keeps the first rows of ``--top K + 1``, on equal nodes and on groups of nodes that differ."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search.answer.precisions import search_precisions, settings_by_precision
from forerun.search.answer.searches import search_groups, search_request
from forerun.search.explore.groups.simulated_plans import simulated
from forerun.search.order.ideas import shown
from forerun.search.request.request import Request
from forerun.spaces.strategies import Strategy


def names(board: object) -> list[str]:
    return [row.name for row in getattr(board, "rows", board)]  # type: ignore[call-overload]


@settings(max_examples=tries(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.floats(0, 1)), max_size=60), st.sets(st.integers(0, 60))
)
def test_any_candidates(drawn: list[tuple[int, int, float]], led: set[int]) -> None:
    """Whatever ideas they are of, however close they lie, and whichever is beaten by one before it."""
    keys = sorted(1 + key for _, _, key in drawn)
    kinds = [(idea, kind) for idea, kind, _ in drawn]
    most = [rows[0] for rows in shown(kinds, keys, 60, lambda place, other: other in led)]
    for top in range(1, 40):
        fewer = [rows[0] for rows in shown(kinds, keys, top, lambda place, other: other in led)]
        assert fewer == most[:top]
    assert most == sorted(most)


@dataclass(frozen=True)
class PlayedRow:
    """The part of a row that a search over groups looks at."""

    strategy: Strategy
    step_time_s: float
    fits: bool
    peak_memory_gib: float = 1.0
    oom_risk: float = 0.0
    variants: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        return str(self.strategy)

    variant = name


@settings(max_examples=tries(200), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3), st.floats(1, 1.4), st.floats(0, 0.1), st.booleans()),
        min_size=20,
        max_size=40,
    ),
    st.booleans(),
)
def test_any_plans_on_groups(drawn: list[tuple[int, int, float, float, bool]], all_variants: bool) -> None:
    """However far their bounds lie below their steps, and whatever has been simulated before."""
    rows, plans = {}, []
    for number, (tp, zero, step_s, slack, fits) in enumerate(drawn):
        strategy = Strategy(dp=1, tp=2**tp, pp=1, mbs=number + 1, zero=zero)
        rows[strategy] = PlayedRow(strategy, step_s, fits or number == 0)
        plans.append(SimpleNamespace(strategy=strategy, least_s=step_s * (1 - slack)))
    plans.sort(key=lambda plan: plan.least_s)
    request = SimpleNamespace(all_variants=all_variants)

    def best(top: int) -> list[str]:
        setting = SimpleNamespace(request=request, top=top)
        played = simulated(
            setting,  # type: ignore[arg-type]  # of which two fields are read
            iter(plans),  # type: ignore[arg-type]  # as far as the search looks at them
            play=lambda plan: rows[plan.strategy],  # type: ignore[arg-type, return-value]  # likewise
            worth=lambda row: row.step_time_s,
        )
        return [row.name for row in played.best(top)]

    most = best(60)
    for top in (1, 2, 9, 10, 11, 20, 21):
        assert best(top) == most[:top]


NARROW: dict[str, Any] = {
    "model": "nemotron-h-8b",
    "cluster": "dgx-a100-80",
    "gpus": "4",
    "global_batch": 48,
    "seq_len": 4096,
    "overrides": {"tp": ["1", "4"], "pp": ["2", "4"], "cp": ["1", "2"], "mbs": ["2", "4"]},
}
"""The third row by preferences of practice is faster and safer than the first, so that it leads the leaderboard."""


@pytest.mark.parametrize("all_variants", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_where_a_later_row_is_faster_and_safer_than_the_first(all_variants: bool) -> None:
    most = search_request(Request(**NARROW, all_variants=all_variants, top=20)).rows
    assert all_variants or (most[0].step_time_s < most[1].step_time_s and most[0].oom_risk < most[1].oom_risk)
    for top in (1, 11):
        assert names(search_request(Request(**NARROW, all_variants=all_variants, top=top))) == names(most)[:top]


def test_over_several_precisions() -> None:
    fields = {**NARROW, "cluster": "dgx-h100"}
    most, fewer = (
        search_precisions(settings_by_precision(Request(**fields, top=top), ("bf16", "fp8")), search_request)
        for top in (11, 2)
    )
    assert names(fewer) == names(most)[:2]
    assert fewer.request["top"] == 2


@pytest.mark.parametrize("model,gpus", [("qwen3-0.6b", "2"), ("qwen3-1.7b", "4")])
@pytest.mark.slow
def test_on_equal_nodes(model: str, gpus: str) -> None:
    fields = {"model": model, "cluster": "dgx-a100-80", "gpus": gpus, "global_batch": 32, "seq_len": 2048}
    most = names(search_request(Request(**fields, top=21)))
    for top in (1, 2, 6, 10, 11, 20):
        assert names(search_request(Request(**fields, top=top))) == most[:top]


@pytest.mark.slow  # four searches
def test_where_tensor_degrees_of_experts_are_variants() -> None:
    own = {"tp": ["2", "8"], "pp": ["1"], "mbs": ["1"], "cp": ["1", "2"], "vpp": ["1"]}
    fields = {"model": "mixtral-8x7b", "cluster": "gb300-nvl72", "gpus": "16", "global_batch": 128, "seq_len": 4096}
    fields |= {"precision": "fp32", "objective": "cost", "overrides": own}
    most = names(search_request(Request(**fields, top=31)))
    for top in (10, 11, 21):
        assert names(search_request(Request(**fields, top=top))) == most[:top]


@pytest.mark.slow  # several searches event by event
def test_on_groups_of_nodes(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text(
        yaml.safe_dump({"groups": [{"cluster": name, "devices": 8} for name in ("dgx-a100-80", "dgx-h100")]})
    )
    own = {"recompute": ["none"], "cp": ["1"], "mbs": ["4", "8", "16"]}
    fields = {"model": "qwen3-4b", "cluster": str(path), "global_batch": 16, "seq_len": 1024, "overrides": own}
    boards = [search_groups(Request(**fields, top=top)) for top in (1, 6, 11)]

    for board, more in itertools.pairwise(boards):
        assert names(board) == names(more)[: len(board.rows)]
    assert boards[0].rows[0].step_time_s < 0.2072  # tp8 pp2 dp1, which --top 1 once passed over
