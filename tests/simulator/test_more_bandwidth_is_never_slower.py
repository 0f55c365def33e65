"""Faster links, all or those of one level, never make a strategy slower."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import examples, never_slower, of_usual_schedules, with_links, without_hiding
from random_requests import candidates, contexts, legal_table

from forerun.spaces.frameworks import framework_names

BREAK_IT = ("deepspeed", "generic", "megatron-lm", "nanotron", "nemo", "torchtitan")
"""Frameworks with candidates that still break the law; see ``laws.without_hiding`` and ``laws.of_usual_schedules``."""
REASON = "what hides communication is counted twice, or moves with the time that the host is waited for"
FRAMEWORKS = [
    pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=REASON)] if name in BREAK_IT else [])
    for name in framework_names()
]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_candidate_of_a_framework(framework: str) -> None:
    for context in examples(framework):
        table = legal_table(context, 16)
        for level in (None, 0, 1):
            never_slower(with_links(context, 2.0, only=level), context, table)


@settings(max_examples=30, deadline=None)
@given(st.data(), st.floats(1.0, 30.0))
def test_random_requests(data: st.DataObject, factor: float) -> None:
    context = without_hiding(data.draw(contexts()))
    level = data.draw(st.sampled_from([None, *range(len(context.cluster.levels))]))
    never_slower(
        with_links(context, factor, only=level), context, of_usual_schedules(data.draw(candidates(context, 20)))
    )
