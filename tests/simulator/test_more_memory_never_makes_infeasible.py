"""With more device memory every strategy that fitted still fits, needs no less, and is no slower."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import ROUNDING, examples, with_memory
from profiles import some_of, tries
from random_requests import candidates, contexts, legal_table

from forerun.simulator import score
from forerun.spaces.frameworks import framework_names
from forerun.spaces.strategies import Context, StrategyTable


def check(context: Context, table: StrategyTable, least: float, most: float) -> None:
    small, large = (score(with_memory(context, memory), table) for memory in (least, most))
    assert np.all(large.fits | ~small.fits)
    assert np.all(large.step_time_s <= small.step_time_s)
    assert np.all(large.peak_memory_bytes >= small.peak_memory_bytes)
    assert np.array_equal(large.allocated_bytes, small.allocated_bytes)
    assert np.all(small.peak_memory_bytes[small.fits] <= least)
    assert np.all(small.peak_memory_bytes[~small.fits] > least)


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.slow
def test_every_candidate_of_a_framework(framework: str) -> None:
    for context in examples(framework)[-2:]:
        table = some_of(legal_table(context, 16))
        for memory in (8e9, 16e9, 40e9):
            check(context, table, memory, 1.25 * memory)


@settings(max_examples=tries(30))
@given(st.data(), st.floats(2e9, 100e9), st.floats(1.0, 4.0))
def test_random_requests(data: st.DataObject, memory: float, factor: float) -> None:
    context = data.draw(contexts())
    check(context, data.draw(candidates(context, 20)), memory, memory * factor)


@pytest.mark.slow
@settings(max_examples=tries(20))
@given(st.data())
def test_a_device_with_exactly_the_peak_is_enough(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 1))
    peak = float(score(with_memory(context, 1e15), table).peak_memory_bytes[0])

    assert score(with_memory(context, peak * (1 + ROUNDING)), table).fits[0]
    needed = score(with_memory(context, 0.0), table).peak_memory_bytes[0]
    assert not score(with_memory(context, needed * (1 - ROUNDING)), table).fits[0]
