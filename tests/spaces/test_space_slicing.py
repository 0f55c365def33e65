"""Any slice of a space is generated where it is needed and agrees with the whole."""

import itertools
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from forerun_examples import dense_model, moe_model, request
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models import Model
from forerun.spaces.strategies import AXES, RULES, StrategySpace, StrategyTable, default_choices, violations
from forerun.spaces.strategies.walk import enumerated


@cache
def space() -> StrategySpace:
    context = request(moe_model(), framework="generic", global_batch=48)
    choices = default_choices(context, [48]) | {"cp": (1, 2), "mbs": (1, 2), "vpp": (1, 2, 3), "recompute": (0, 2)}
    return StrategySpace(choices=choices, context=context)


@given(st.lists(st.floats(0, 1), max_size=6))
@settings(max_examples=tries(20))
def test_slices_add_up_to_the_whole(cuts: list[float]) -> None:
    whole, reasons = space().table(0, space().size)
    edges = [0, *sorted(int(cut * space().size) for cut in cuts), space().size]
    index, counted = [], Counter()
    for low, high in itertools.pairwise(edges):
        table, rejected = space().table(low, high)
        index.append(table.index)
        counted += rejected

    assert np.array_equal(np.concatenate(index), whole.index)
    assert counted == reasons
    assert len(whole) + sum(reasons.values()) == space().size


@pytest.mark.slow
@given(st.integers(2, 5), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=tries(20))
def test_candidates_below_hopeless_prefixes_are_counted_and_not_made(every: int, low: float, high: float) -> None:
    span = sorted(int(share * space().size) for share in (low, high))
    whole, reasons = space().table(*span)

    def hopeless(prefixes: StrategyTable) -> np.ndarray:
        return np.asarray((prefixes.column("tp") + prefixes.column("mbs") + prefixes.column("dp")) % every == 0)

    parts = list(space().walk(*span, hopeless))
    index = np.concatenate([part.table.index for part in parts])
    inside = ~hopeless(whole)

    assert sum((part.rejected for part in parts), Counter()) == reasons
    assert len(index) + sum(part.passed for part in parts) == len(whole)
    assert set(whole.index[inside]) <= set(index) <= set(whole.index)
    # Only at the ends of a slice is anything made below a prefix that is hopeless.
    below = space().below
    edges = {span[0] // below, (span[1] - 1) // below}
    assert {int(place) // below for place in set(index) - set(whole.index[inside])} <= edges


def test_dense_slices_come_in_parts() -> None:
    whole, reasons = space().table(0, space().size)
    parts = list(enumerated(space().choices, space().context, 0, space().size, at_once=space().below * 50))

    assert len(parts) > 3
    assert np.array_equal(np.concatenate([part.table.index for part in parts]), whole.index)
    assert sum((part.rejected for part in parts), Counter()) == reasons


@given(st.integers(0, 10**9))
@settings(max_examples=tries(200))
def test_generated_candidates_are_those_that_break_no_law(seed: int) -> None:
    index = seed % space().size
    values, rest = {}, index
    for axis in reversed(AXES):
        rest, digit = divmod(rest, len(space().choices[axis]))
        values[axis] = space().choices[axis][digit]
    degree = values["tp"] * values["pp"] * values["cp"]
    values |= {"dp": values["gpus"] // degree, "software": 0}
    table, rejected = space().table(index, index + 1)
    broken = violations(values, space().context)

    assert (len(table) == 1) == (not broken)
    assert sum(rejected.values()) == len(broken[:1])
    if len(table):
        assert {axis: int(table.column(axis)[0]) for axis in values} == values


@pytest.mark.slow
def test_every_law_is_broken_by_some_candidate_of_a_rich_space() -> None:
    strict = request(moe_model(), framework="deepspeed", global_batch=48, seq_len=2050)
    choices = default_choices(request(moe_model(), framework="generic", global_batch=48), [48])
    choices |= {
        "tp": (1, 2, 3, 32),
        "cp": (1, 2, 4),
        "etp": (1, 2),
        "ep": (1, 2, 3),
        "vpp": (1, 2),
        "shard": (0, 2),
        "switches": (0, 2),
    }
    seen = set()
    strict = replace(strict, framework=replace(strict.framework, context_exchange="heads"))
    flashless = replace(strict, cluster=load_cluster("dgx1-v100"), framework=load_framework("generic"))
    for context in (strict, flashless, request(kv_poor(), framework="torchtitan", global_batch=48)):
        found = StrategySpace(choices=choices, context=context).table(0, 10**9)[1]
        seen |= set(found)
        codes = {code for values in sample(choices) for code, _ in violations(values, context)}
        seen |= codes

    assert {rule.code for rule in RULES} - seen == set()


def kv_poor() -> Model:
    """Return a dense model whose key/value heads are fewer than some tensor degrees."""
    return dense_model(heads=32, kv_heads=2)


def sample(choices: dict[str, tuple[int, ...]]) -> list[dict[str, int]]:
    """Return some candidates at random, dp and switches included."""
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(500):
        values = {axis: int(generator.choice(options)) for axis, options in choices.items()}
        degree = values["tp"] * values["pp"] * values["cp"]
        if values["gpus"] % degree == 0:
            rows.append(values | {"dp": values["gpus"] // degree, "software": int(generator.integers(4))})
    return rows
