"""However a space is cut into slices and chunks, and in whatever order the pieces arrive, the result is the same."""

import itertools
import pickle
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from profiles import tries

from forerun.search.explore.flat.exhaustive import Best, Problem, SliceResult, lowest, merge, search_slice
from forerun.search.explore.flat.sample import search_space
from forerun.search.order.objectives import OBJECTIVES
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.simulator import ScoreTable, score
from forerun.simulator.score_table import Floats

RELAXED = settings(max_examples=tries(15), suppress_health_check=[HealthCheck.function_scoped_fixture])


def content(piece: SliceResult) -> tuple[object, ...]:
    # Candidates that do not fit are named where nothing else is.
    shown = piece.best if piece.feasible else piece.closest
    assert shown is not None and len(shown) and (piece.closest is None or not piece.feasible)
    return (
        piece.enumerated,
        piece.legal,
        piece.feasible,
        dict(piece.rejected),
        shown.index.tolist(),
        shown.keys.tolist(),
        shown.scores.time_s["compute"].tolist(),
        shown.scores.memory_bytes["activations"].tolist(),
    )


def scored(index: NDArray[np.int64], keys: Floats) -> Best:
    """Candidates whose scores are all the number of their row."""
    rows = np.arange(len(index), dtype=np.float64)
    scores = ScoreTable(
        step_time_s=rows,
        time_s={},
        peak_memory_bytes=rows,
        allocated_bytes=rows,
        memory_bytes={},
        peak_stage=rows.astype(np.int64),
        fits=rows >= 0,
    )
    return Best(index=index, keys=keys, scores=scores)


@RELAXED
@given(
    cuts=st.lists(st.floats(0, 1), max_size=5),
    chunk=st.sampled_from([50, 333, 5000, 1 << 16]),
    shuffle=st.randoms(use_true_random=False),
    objective=st.sampled_from(sorted(OBJECTIVES)),
    top=st.integers(1, 40),
)
def test_any_slices_in_any_order(
    make_setting: Callable[..., Setting],
    few_times: Scorer,
    cuts: list[float],
    chunk: int,
    shuffle: object,
    objective: str,
    top: int,
) -> None:
    problem = Problem(space=make_setting(gpus="8..16").space({"vpp": [1], "mbs": [1, 2]}), objective=objective, top=top)
    bounds = sorted({0, problem.space.size, *(int(cut * problem.space.size) for cut in cuts)})
    pieces = [
        search_slice(problem, low, high, score=few_times, chunk=chunk) for low, high in itertools.pairwise(bounds)
    ]
    shuffle.shuffle(pieces)  # type: ignore[attr-defined]  # a random.Random

    assert content(merge(pieces, top=top)) == content(search_space(problem, score=few_times))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama3-8b", "llama3-405b"])  # the second does not fit
def test_the_real_scores_do_not_depend_on_the_chunk(make_setting: Callable[..., Setting], model: str) -> None:
    space = make_setting(model=model).space({"mbs": [1, 2]})
    problem = Problem(space=space, objective="throughput", top=50)

    whole = search_space(problem, score=score)
    chunked = search_slice(problem, 0, problem.space.size, score=score, chunk=97)

    assert content(whole) == content(chunked)


def test_a_worker_can_be_sent_a_problem_and_send_a_piece_back(make_setting: Callable[..., Setting]) -> None:
    problem = Problem(space=make_setting().space(), objective="throughput", top=5)
    sent = pickle.loads(pickle.dumps(problem))

    assert content(pickle.loads(pickle.dumps(search_space(sent)))) == content(search_space(problem))


def test_counts_add_up(make_setting: Callable[..., Setting], few_times: Scorer) -> None:
    space = make_setting().space()
    piece = search_space(Problem(space=space, objective="throughput", top=3), score=few_times)

    assert piece.enumerated == space.size
    assert piece.feasible + sum(piece.rejected.values()) == space.size
    assert piece.legal == piece.feasible + piece.rejected["memory"]


def test_ties_rank_by_index(
    make_setting: Callable[..., Setting], few_times: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forerun.search.order.worth.launch_factor", lambda context, table, price: 1.0)
    space = make_setting().space()
    piece = search_space(Problem(space=space, objective="throughput", top=100), score=few_times)
    assert piece.best is not None

    table, _ = space.table(0, space.size)
    scores = few_times(space.context, table)
    expected = sorted(
        (float(time), int(index))
        for time, index, fits in zip(scores.step_time_s, table.index, scores.fits, strict=True)
        if fits
    )[:100]
    assert list(zip(piece.best.keys[0].tolist(), piece.best.index.tolist(), strict=True)) == expected
    assert len({time for time, _ in expected}) < len(expected) / 2  # the test is about ties


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=60), count=st.integers(1, 70)
)
def test_lowest_is_sorting(rows: list[tuple[int, int, bool]], count: int) -> None:
    index = np.arange(len(rows), dtype=np.int64) * 7
    keys = np.array([[first for first, _, _ in rows], [second for _, second, _ in rows]], dtype=np.float64)
    mask = np.array([kept for _, _, kept in rows], dtype=bool)

    found = lowest(scored(index, keys.reshape(2, len(rows))), mask, count)

    expected = sorted((first, second, 7 * i) for i, (first, second, kept) in enumerate(rows) if kept)[:count]
    assert [(*keys, i) for *keys, i in zip(*found.keys.tolist(), found.index.tolist(), strict=True)] == expected
    assert (7 * found.scores.step_time_s).tolist() == found.index.tolist()


@given(
    firsts=st.lists(st.integers(0, 5), min_size=1, max_size=60),
    width=st.integers(2, 9),
    count=st.integers(1, 8),
    cut=st.integers(0, 60),
)
def test_the_lowest_of_every_idea_is_kept_however_slices_are_cut(
    firsts: list[int], width: int, count: int, cut: int
) -> None:
    index, keys = np.arange(len(firsts), dtype=np.int64), np.array([firsts], dtype=np.float64)
    every = np.ones(len(firsts), dtype=bool)
    leaders: dict[int, tuple[int, int]] = {}
    for i, first in enumerate(firsts):
        leaders[i // width] = min(leaders.get(i // width, (first, i)), (first, i))
    expected = sorted(leaders.values())[:count]

    whole = scored(index, keys)
    pieces = [SliceResult(best=lowest(whole, part, count, width)) for part in (index < cut, index >= cut)]
    for found in (lowest(whole, every, count, width), merge(pieces[::-1], top=count, width=width).best):
        assert found is not None
        assert list(zip(found.keys[0].tolist(), found.index.tolist(), strict=True)) == expected
        assert found.scores.step_time_s.tolist() == found.index.tolist()


@pytest.mark.slow
def test_ideas_do_not_depend_on_the_chunk(make_setting: Callable[..., Setting]) -> None:
    problem = Problem(space=make_setting().space(), objective="throughput", top=8, ideas=True)

    whole = search_space(problem, score=score)
    chunked = search_slice(problem, 0, problem.space.size, score=score, chunk=97)

    assert content(whole) == content(chunked)
    assert whole.best is not None and len(set((whole.best.index // problem.idea_width).tolist())) == 8


def test_merging_nothing_is_nothing() -> None:
    empty = merge([], top=3)

    assert (empty.enumerated, empty.legal, empty.feasible, Counter(empty.rejected)) == (0, 0, 0, Counter())
    assert empty.best is None


@pytest.mark.parametrize("low,high", [(-5, 0), (10, 10), (1 << 50, 1 << 51)])
def test_a_slice_outside_the_space_is_empty(
    make_setting: Callable[..., Setting], few_times: Scorer, low: int, high: int
) -> None:
    problem = Problem(space=make_setting().space(), objective="throughput", top=3)

    assert search_slice(problem, low, high, score=few_times).enumerated == 0
