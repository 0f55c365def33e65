"""More work at the same strategy is never done sooner: longer sequences, larger batches, more layers."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import examples, never_slower, of_usual_schedules, without_hiding
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


BREAK_IT = ("deepspeed", "fsdp", "generic", "megatron-lm", "nemo", "torchtitan")
"""Frameworks with candidates that still break the law; see ``laws.without_hiding`` and ``laws.of_usual_schedules``."""
REASON = "what hides communication is counted twice, or moves with the time that the host is waited for"


def known(more: Callable[[Context, int], Context], framework: str) -> list[pytest.MarkDecorator]:
    breaks = more is longer and framework in BREAK_IT
    return [pytest.mark.xfail(strict=True, reason=REASON)] if breaks else []


@pytest.mark.parametrize(
    "more,framework",
    [
        pytest.param(more, name, marks=known(more, name))
        for more in (longer, larger_batch, deeper)
        for name in framework_names()
    ],
)
def test_every_candidate_of_a_framework(framework: str, more) -> None:
    for context in examples(framework):
        table = legal_table(context, 16)
        table = table.take(table.column("split") == 0)  # the same strategy deals twice the layers
        never_slower(context, more(context, 2), table)


@settings(max_examples=30, deadline=None)
@given(st.data(), st.sampled_from([longer, larger_batch]), st.integers(2, 4))
def test_random_requests(data: st.DataObject, more, factor: int) -> None:
    context = without_hiding(data.draw(contexts()))
    never_slower(context, more(context, factor), of_usual_schedules(data.draw(candidates(context, 20))))
