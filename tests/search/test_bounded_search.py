"""A search that passes over candidates by a lower bound finds what one finds that scores all."""

from collections.abc import Callable

import pytest

import forerun.search.explore.flat.exhaustive as exhaustive
import forerun.search.explore.flat.sample as sample
from forerun.search.explore.flat.best import best_row
from forerun.search.explore.flat.exhaustive import Problem, SliceResult, search_slice
from forerun.search.explore.flat.sample import search_space
from forerun.search.request.setting import Setting


def problem_of(setting: Setting, objective: str, top: int = 20) -> Problem:
    return Problem(space=setting.space(), objective=objective, top=top)


def best(piece: SliceResult) -> tuple[list[int], list[list[float]]]:
    assert piece.best is not None
    return piece.best.index.tolist(), piece.best.keys.tolist()


@pytest.fixture(autouse=True)
def small_spaces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "WORTH", 1)
    monkeypatch.setattr(sample, "WINDOW", 1 << 10)
    monkeypatch.setattr(exhaustive, "CHUNK", 1 << 10)


FRONT = "throughput,gpus"


@pytest.mark.parametrize("objective", ["throughput", FRONT])
def test_the_best_are_the_same(make_setting: Callable[..., Setting], objective: str) -> None:
    problem = problem_of(make_setting(gpus="16..32"), objective)
    whole = search_slice(problem, 0, problem.space.size)
    bounded = search_space(problem)

    assert best(bounded) == best(whole)
    for beside, other in ((bounded.fastest, whole.fastest), (bounded.safest, whole.safest)):
        assert (beside is None) == (other is None)
        assert beside is None or other is None or beside.index.tolist() == other.index.tolist()
    assert (bounded.enumerated, bounded.legal) == (whole.enumerated, whole.legal)


def test_what_was_passed_over_is_counted(make_setting: Callable[..., Setting]) -> None:
    problem = problem_of(make_setting(gpus="16..32"), "throughput")
    found = search_space(problem)

    assert found.rejected["slower"] > 1_000
    assert found.rejected["slower"] + found.rejected["memory"] + found.feasible == found.legal


def test_counts_do_not_depend_on_slices(make_setting: Callable[..., Setting]) -> None:
    whole = problem_of(make_setting(gpus="16..32"), "throughput")
    problem = sample.bounded(whole, sample.sampled(whole))
    size = problem.space.size
    cut = problem.merged(search_slice(problem, low, low + size // 7 + 1) for low in range(0, size, size // 7 + 1))

    assert cut.rejected == search_slice(problem, 0, size).rejected


def test_a_prefix_is_hopeless_where_all_below_it_are(make_setting: Callable[..., Setting]) -> None:
    whole = problem_of(make_setting(gpus="16..32"), "throughput")
    problem = sample.bounded(whole, sample.sampled(whole))
    bound, space = problem.bound, problem.space
    assert bound is not None
    table, _ = space.table(0, space.size)
    parts = list(space.walk(0, space.size, bound.hopeless))
    made = {int(index) for part in parts for index in part.table.index}
    wanted = {int(index) for index in table.index[bound.keeps(table)]}

    assert wanted <= made
    assert len(made) < len(table) / 2  # most are passed over before they are made


def test_nothing_is_passed_over_where_nothing_fits(make_setting: Callable[..., Setting]) -> None:
    problem = problem_of(make_setting(model="llama3-405b", gpus="8"), "throughput")
    found = search_space(problem)

    assert found.feasible == 0
    assert "slower" not in found.rejected
    assert found.closest is not None and len(found.closest)


@pytest.mark.parametrize("objective", ["throughput", "cost"])
@pytest.mark.parametrize("share", [0.5, 1.0 + 1e-9, 1.05, 2.0])
def test_the_best_below_a_number_of_device_seconds_is_the_best_of_all(
    make_setting: Callable[..., Setting], objective: str, share: float
) -> None:
    setting = make_setting(gpus="16..32")
    problem = problem_of(setting, objective, top=1)
    whole = search_slice(problem, 0, problem.space.size)
    first = best_row(setting, objective=objective)
    assert first is not None
    piece = search_space(problem, device_s=share * first.gpus * first.step_time_s)

    if share > 1:
        assert best(piece) == best(whole)
    assert piece.rejected["slower"] > 0 and piece.legal == whole.legal
