"""Gradients that are added up in an fp32 buffer beside them: what that costs, and under which sharding stages."""

from dataclasses import replace

import pytest
from forerun_examples import request

from forerun.simulator import ScoreTable, score
from forerun.simulator.costs import memory_bound_time_s
from forerun.spaces.models import parameter_count
from forerun.spaces.strategies import Context, Strategy, table_of


def scores_of(context: Context) -> ScoreTable:
    """Return the scores of one layout with its optimizer sharded by none and by ZeRO-1."""
    return score(context, table_of([Strategy(dp=8, tp=1, pp=1, mbs=1, zero=zero) for zero in (0, 1)]))


def with_precision(precision: str) -> Context:
    """Return a request under Megatron-DeepSpeed for 8 microbatches of a model that no host can delay."""
    made = request(framework="megatron-deepspeed")
    workload = replace(made.workload, precision=precision)
    return replace(made, workload=workload, framework=replace(made.framework, host_layer_s=0.0))


def test_bf16_moves_twenty_bytes_a_parameter_more_where_nothing_shards() -> None:
    context = with_precision("bf16")
    unsharded, sharded = scores_of(context).time_s["compute"]

    parameters = parameter_count(context.model)
    more_s = 8 * float(memory_bound_time_s(context.cluster.device, 20.0 * parameters, kernels=0))
    assert unsharded - sharded == pytest.approx(more_s, rel=0.02)


def test_fp16_is_added_up_where_it_is() -> None:
    unsharded, sharded = scores_of(with_precision("fp16")).time_s["compute"]

    assert unsharded == sharded


def test_the_buffer_is_held_as_long_as_it_is_used() -> None:
    context = with_precision("bf16")
    held = scores_of(context).memory_bytes["gradients"] / parameter_count(context.model)
    assert held == pytest.approx([6.0, 2.0], rel=0.01)

    further = replace(context, framework=replace(context.framework, main_grad_to_zero=1))
    held = scores_of(further).memory_bytes["gradients"] / parameter_count(context.model)
    assert held == pytest.approx([6.0, 6.0], rel=0.01)
