"""Faster devices and links never make a strategy slower, and more work at the same strategy never makes it faster."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import examples, never_slower, with_flops, with_links, with_memory_rate
from profiles import some_of, tries
from random_requests import candidates, contexts, legal_table

from forerun.spaces.frameworks import framework_names
from forerun.spaces.strategies import Context

Change = Callable[[Context, float], Context]


def longer(context: Context, factor: int) -> Context:
    return replace(context, workload=replace(context.workload, seq_len=context.workload.seq_len * factor))


def larger_batch(context: Context, factor: int) -> Context:
    return replace(context, workload=replace(context.workload, global_batch=context.workload.global_batch * factor))


def deeper(context: Context, factor: int) -> Context:
    layers = tuple(replace(layer, count=layer.count * factor) for layer in context.model.layers)
    return replace(context, model=replace(context.model, layers=layers))


FASTER: Mapping[str, Change] = {
    "matrix units": with_flops,
    "device memory": with_memory_rate,
    "all links": with_links,
    "links within nodes": partial(with_links, only=0),
    "links between nodes": partial(with_links, only=1),
}
WORK = {"longer sequences": longer, "larger batches": larger_batch, "more layers": deeper}


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.slow
def test_every_candidate_of_a_framework(framework: str) -> None:
    for context in examples(framework):
        legal = legal_table(context, 16)
        for faster in FASTER.values():
            never_slower(faster(context, 2.0), context, some_of(legal))
        even = some_of(legal.take(legal.column("split") == 0))  # the same strategy deals twice the layers
        for more in WORK.values():
            never_slower(context, more(context, 2), even)


@settings(max_examples=tries(30))
@given(st.data(), st.floats(1.0, 30.0), st.sampled_from(["matrix units", "device memory"]))
def test_random_devices(data: st.DataObject, factor: float, part: str) -> None:
    context = data.draw(contexts())
    never_slower(FASTER[part](context, factor), context, data.draw(candidates(context, 20)), odd=True)


@settings(max_examples=tries(30))
@given(st.data(), st.floats(1.0, 30.0))
@pytest.mark.slow
def test_random_links(data: st.DataObject, factor: float) -> None:
    context = data.draw(contexts())
    level = data.draw(st.sampled_from([None, *range(len(context.cluster.levels))]))
    never_slower(with_links(context, factor, only=level), context, data.draw(candidates(context, 20)), odd=True)


@settings(max_examples=tries(30))
@given(st.data(), st.sampled_from([longer, larger_batch]), st.integers(2, 4))
def test_random_work(data: st.DataObject, more: Change, factor: int) -> None:
    context = data.draw(contexts())
    never_slower(context, more(context, factor), data.draw(candidates(context, 20)), odd=True)
