"""A device that computes or reads its memory faster never makes a strategy slower."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import examples, never_slower, with_flops, with_memory_rate
from profiles import some_of, tries
from random_requests import candidates, contexts, legal_table

from forerun.spaces.frameworks import framework_names


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.slow
def test_every_candidate_of_a_framework(framework: str) -> None:
    for context in examples(framework):
        table = some_of(legal_table(context, 16))
        never_slower(with_flops(context, 2.0), context, table)
        never_slower(with_memory_rate(context, 2.0), context, table)


@settings(max_examples=tries(30))
@given(st.data(), st.floats(1.0, 30.0), st.sampled_from([with_flops, with_memory_rate]))
def test_random_requests(data: st.DataObject, factor: float, faster) -> None:
    context = data.draw(contexts())
    never_slower(faster(context, factor), context, data.draw(candidates(context, 20)), odd=True)
