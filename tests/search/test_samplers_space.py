"""The space of uneven stages: what it counts, builds and names is what the flat space and plain counting say."""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search.request.setting import Setting
from forerun.simulator import score
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Schedule, Split, Strategy, table_of
from forerun.spaces.strategies.space import strategies_at
from forerun.spaces.strategies.staged_size import layouts_of
from forerun.spaces.strategies.staged_space import StagedSpace
from forerun.spaces.strategies.stages import layers_per_virtual_stage

SMALL: dict[str, list[object]] = {"cp": [1], "mbs": [1, 2], "placement": [0], "recompute": ["none"]}
RELAXED = settings(max_examples=tries(60), suppress_health_check=[HealthCheck.function_scoped_fixture])


def test_ways_are_counted_exactly(make_setting: Callable[..., Setting]) -> None:
    space = StagedSpace(flat=make_setting().space(), reach=2)  # 32 layers

    for pp in (2, 3, 4, 5):
        even = [b * 32 // pp for b in range(1, pp)]
        dealt = [
            edges
            for edges in itertools.product(*(range(e - 2, e + 3) for e in even))
            if all(high > low for low, high in itertools.pairwise([0, *edges, 32]))
        ]
        assert layouts_of(space, pp) == len(dealt)
    assert layouts_of(space, 1) == 0


def test_without_reach_it_is_the_flat_space(make_setting: Callable[..., Setting]) -> None:
    space = StagedSpace(flat=make_setting(overrides=SMALL).space(), reach=0)
    table, _ = space.flat.table(0, space.flat.size)
    enumerated = list(space.walk())

    assert space.size == space.flat.size
    assert len(enumerated) == len(set(enumerated)) == len(table) > 100
    assert set(enumerated) == set(strategies_at(space.flat, table.index))


def test_walking_yields_every_candidate_once(make_setting: Callable[..., Setting]) -> None:
    space = StagedSpace(flat=make_setting(overrides={**SMALL, "pp": [1, 4], "tp": [2]}).space(), reach=2)
    enumerated = list(space.walk())
    flat = [strategy for strategy in enumerated if strategy.layers_per_stage is None]
    loose = {dataclasses.replace(s, layers_per_stage=None) for s in enumerated if s.layers_per_stage is not None}

    assert len(enumerated) == len(set(enumerated))
    assert len(enumerated) - len(flat) == len(loose) * (layouts_of(space, 4) - 1)  # 8, 8, 8, 8 is the even split


@RELAXED
@given(seed=st.integers(0, 10_000))
def test_what_is_built_can_be_named_and_built_again(make_setting: Callable[..., Setting], seed: int) -> None:
    space = StagedSpace(flat=make_setting().space())
    random = np.random.default_rng(seed)
    built = [space.build(lambda name, choices: choices[int(random.integers(len(choices)))]) for _ in range(20)]

    for strategy in filter(None, built):
        answers = space.answers(strategy)
        again = space.build(lambda name, choices, answers=answers: answers[name])  # type: ignore[misc]  # bound now
        assert again == strategy == space.canonical(strategy)


@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.GPIPE, Schedule.ZB_H1, Schedule.DUALPIPE])
@pytest.mark.parametrize("split,pp", [(Split.EVEN, 4), (Split.BALANCED, 6), (Split.BY_COST, 4)])
def test_explicit_layers_cost_what_the_rule_costs(
    make_setting: Callable[..., Setting], schedule: Schedule, split: Split, pp: int
) -> None:
    context = make_setting().context
    flat = Strategy(dp=2, tp=2, pp=pp, mbs=1, schedule=schedule, split=split)
    counts = layers_per_virtual_stage(context.model.layer_count, pp, split, context.head_layers)
    explicit = dataclasses.replace(flat, split=Split.EVEN, layers_per_stage=counts)
    scores = score(context, table_of([flat, explicit]))

    assert scores.step_time_s[0] == scores.step_time_s[1]
    assert scores.peak_memory_bytes[0] == scores.peak_memory_bytes[1]


@pytest.mark.parametrize(
    "layers,fine",
    [((8, 8, 8, 8), True), ((7, 9, 8, 8), True), ((8, 8, 8, 7), False), ((4, 12, 8, 8), False), ((0, 16, 8, 8), False)],
)
def test_layers_must_be_dealt(make_setting: Callable[..., Setting], layers: tuple[int, ...], fine: bool) -> None:
    space = StagedSpace(flat=make_setting().space(), reach=2)
    strategy = Strategy(dp=4, pp=4, mbs=1, layers_per_stage=layers)

    assert list(space.legal([strategy])) == [fine]


def test_a_negative_reach_is_refused(make_setting: Callable[..., Setting]) -> None:
    with pytest.raises(RequestError, match="reach must be at least 0"):
        StagedSpace(flat=make_setting().space(), reach=-1)
