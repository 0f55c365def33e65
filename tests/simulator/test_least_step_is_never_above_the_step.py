"""The lower bound that spares a search from scoring holds for every candidate of every request."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import request
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import examples
from profiles import some_of, tries
from random_requests import candidates, contexts, legal_table
from switched_requests import switched_contexts

from forerun.simulator import score
from forerun.simulator.core.bound import LeastStep
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import framework_names
from forerun.spaces.models import load_model
from forerun.spaces.models.tuning import tuned
from forerun.spaces.strategies import AXES, Context, StrategyTable, parse_strategy, table_of
from forerun.spaces.strategies.software import can_turn_on
from forerun.spaces.strategies.walk import ASKED_AFTER

ROUNDING = 1e-9


def holds(context: Context, table: StrategyTable) -> None:
    step_s = score(context, table).step_time_s * (1 + ROUNDING)
    least_s = LeastStep(context).step_s(table)
    assert (least_s <= step_s).all()
    known = (*AXES[: AXES.index(ASKED_AFTER) + 1], "dp")
    prefixes = replace(table, codes={axis: table.codes[axis] for axis in known})
    # The bound of a candidate is nearer than its step, and a prefix is passed over where it passes over all.
    assert (LeastStep(context).below_s(prefixes) <= least_s * (1 + ROUNDING)).all()


def searched(context: Context) -> Context:
    """The request as a search has it: with the switches free that a user did not set."""
    return replace(context, free_software=can_turn_on(context.framework))


@pytest.mark.parametrize("framework", framework_names())
@pytest.mark.slow
def test_every_candidate_of_a_framework(framework: str) -> None:
    for context in examples(framework):
        holds(searched(context), some_of(legal_table(searched(context), 16)))


def test_every_candidate_whose_software_a_search_turns_on() -> None:
    for context in examples("megatron-lm"):
        hopper = replace(context.cluster.device, architecture="Hopper sm90")  # the switches need one that has them
        free = searched(replace(context, cluster=replace(context.cluster, device=hopper)))
        table = some_of(legal_table(free, 16))
        assert table.column("software").any()
        holds(free, table)


def test_passes_that_are_shorter_alone() -> None:
    """What overlaps tokens takes multiprocessors: a pass with little else to do is shorter with no other beside it."""
    model = tuned(load_model("mixtral-8x7b"), "16", ())
    context = request(model, framework="hai-llm", cluster=load_cluster("aws-p4d"), global_batch=64)
    context = replace(context, workload=replace(context.workload, seq_len=1024))
    holds(context, table_of([parse_strategy("tp1 pp1 dp64 ep8 mbs1 zero1"), parse_strategy("tp2 dp32 ep8 mbs1")]))


@settings(max_examples=tries(25), deadline=None)
@given(st.data())
def test_random_requests(data: st.DataObject) -> None:
    context = searched(data.draw(contexts()))
    holds(context, data.draw(candidates(context, 40)))


@settings(max_examples=tries(40), deadline=None)
@given(st.data())
@pytest.mark.slow
def test_random_software(data: st.DataObject) -> None:
    """Whatever the switches are set to, and of models of every kind."""
    context = data.draw(switched_contexts())
    holds(context, data.draw(candidates(context, 100)))


def test_what_is_remembered_is_what_is_computed() -> None:
    context = examples(framework_names()[0])[0]
    table = legal_table(context, 16)
    least = LeastStep(context)
    parts = [least.step_s(table.take(slice(low, low + 50))) for low in range(0, len(table), 50)]

    assert np.array_equal(np.concatenate(parts), LeastStep(context).step_s(table))
