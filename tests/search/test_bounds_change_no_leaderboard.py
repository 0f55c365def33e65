"""Whatever is asked, passing over candidates by a lower bound changes no row of a leaderboard, bit for bit."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import contexts
from switched_requests import switched_contexts

import forerun.search.explore.flat.exhaustive as exhaustive
import forerun.search.explore.flat.sample as sample
from forerun.search.explore.flat.exhaustive import Best, Problem, search_slice
from forerun.search.explore.flat.sample import search_space
from forerun.search.order.objectives import OBJECTIVES
from forerun.spaces.frameworks import framework_names, load_framework
from forerun.spaces.strategies import Context, StrategySpace, default_choices
from forerun.spaces.strategies.software import can_turn_on

pytestmark = pytest.mark.slow


def alike(context: Context, gpus: tuple[int, ...], objective: str, top: int, ideas: bool) -> None:
    space = StrategySpace(choices=default_choices(context, gpus), context=context)
    problem = Problem(space=space, objective=objective, top=top, ideas=ideas)
    with patch.object(sample, "WORTH", 1), patch.object(exhaustive, "CHUNK", 1 << 10):
        bounded = search_space(problem)
    whole = search_slice(problem, 0, space.size)
    assert (bounded.enumerated, bounded.legal) == (whole.enumerated, whole.legal)
    for name in ("best", "fastest", "safest"):
        assert rows(getattr(bounded, name)) == rows(getattr(whole, name)), name


def rows(best: Best | None) -> tuple[list[int], list[list[float]]] | None:
    return None if best is None or not len(best) else (best.index.tolist(), best.keys.tolist())


def free(context: Context) -> Context:
    """The request with all switches free that its framework can turn on."""
    return replace(context, free_software=can_turn_on(context.framework))


def most(context: Context, gpus: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in gpus if n <= context.cluster.max_devices) or (1,)


ASKED = st.tuples(
    st.sampled_from([(1,), (4,), (8,), (4, 8), (16,)]), st.sampled_from(sorted(OBJECTIVES)), st.sampled_from([1, 5])
)


@settings(max_examples=tries(20), deadline=None)
@given(contexts(), ASKED, st.booleans())
def test_of_random_requests(context: Context, asked: tuple[tuple[int, ...], str, int], ideas: bool) -> None:
    gpus, objective, top = asked
    alike(free(context), most(context, gpus), objective, top, ideas)


@settings(max_examples=tries(20), deadline=None)
@given(switched_contexts(), ASKED, st.booleans())
def test_of_random_software(context: Context, asked: tuple[tuple[int, ...], str, int], ideas: bool) -> None:
    gpus, objective, top = asked
    alike(context, most(context, gpus), objective, top, ideas)


@pytest.mark.parametrize("framework", framework_names())
@settings(max_examples=tries(6), deadline=None)
@given(contexts(), st.booleans())
def test_of_every_framework(framework: str, context: Context, ideas: bool) -> None:
    alike(free(replace(context, framework=load_framework(framework))), (8,), "throughput", 5, ideas)
