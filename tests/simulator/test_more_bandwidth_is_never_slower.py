"""Faster links, all or those of one level, never make a strategy slower."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import examples, never_slower, with_links
from profiles import some_of, tries
from random_requests import candidates, contexts, legal_table

from forerun.spaces.frameworks import framework_names


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.slow
def test_every_candidate_of_a_framework(framework: str) -> None:
    for context in examples(framework):
        table = some_of(legal_table(context, 16))
        for level in (None, 0, 1):
            never_slower(with_links(context, 2.0, only=level), context, table)


@settings(max_examples=tries(30))
@given(st.data(), st.floats(1.0, 30.0))
@pytest.mark.slow
def test_random_requests(data: st.DataObject, factor: float) -> None:
    context = data.draw(contexts())
    level = data.draw(st.sampled_from([None, *range(len(context.cluster.levels))]))
    never_slower(with_links(context, factor, only=level), context, data.draw(candidates(context, 20)), odd=True)
