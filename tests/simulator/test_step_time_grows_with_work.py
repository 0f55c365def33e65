"""More work at the same strategy is never done sooner: longer sequences, larger batches, more layers."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import examples, never_slower
from profiles import some_of, tries
from random_requests import candidates, contexts, legal_table

from forerun.spaces.frameworks import framework_names
from forerun.spaces.strategies import Context


def longer(context: Context, factor: int) -> Context:
    return replace(context, workload=replace(context.workload, seq_len=context.workload.seq_len * factor))


def larger_batch(context: Context, factor: int) -> Context:
    return replace(context, workload=replace(context.workload, global_batch=context.workload.global_batch * factor))


def deeper(context: Context, factor: int) -> Context:
    layers = tuple(replace(layer, count=layer.count * factor) for layer in context.model.layers)
    return replace(context, model=replace(context.model, layers=layers))


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.parametrize("more", [longer, larger_batch, deeper])
@pytest.mark.slow
def test_every_candidate_of_a_framework(framework: str, more) -> None:
    for context in examples(framework):
        table = some_of(legal_table(context, 16))
        table = table.take(table.column("split") == 0)  # the same strategy deals twice the layers
        never_slower(context, more(context, 2), table)


@settings(max_examples=tries(30))
@given(st.data(), st.sampled_from([longer, larger_batch]), st.integers(2, 4))
def test_random_requests(data: st.DataObject, more, factor: int) -> None:
    context = data.draw(contexts())
    never_slower(context, more(context, factor), data.draw(candidates(context, 20)), odd=True)
