"""Products that read the same input, as one or apart: what stays the same, and what each adds."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import dense_model, request

from forerun.simulator.costs import gemm_time_s, stream_operator_time_s
from forerun.simulator.layer.blocks import layer_work
from forerun.simulator.layer.communication import layer_exchange, tensor_sync
from forerun.simulator.layer.shard import shard_of
from forerun.spaces.strategies import Context, Strategy, table_of


def contexts() -> tuple[Context, Context]:
    """Return a request with a gated MLP, products merged and apart; nothing hides communication."""
    made = replace(request(framework="generic", global_batch=64), model=dense_model())
    merged = replace(made.framework, overlap_tensor=0.0, overlap_tensor_backward=0.0)
    return replace(made, framework=merged), replace(made, framework=replace(merged, merged_products=False))


@pytest.mark.parametrize(("sp", "more"), [(False, 3), (True, 0)])
def test_each_adds_its_gradient_up_over_tensor_ranks_unless_the_input_was_gathered_once(sp: bool, more: int) -> None:
    strategy = Strategy(dp=1, tp=8, pp=1, mbs=2, sp=sp)
    found = []
    for context in contexts():
        shard = shard_of(context, table_of([strategy]), np.array([0]))
        layer = context.model.layers[0]
        found.append((layer_exchange(context, layer, shard, layer_work(context, layer, shard)), context, shard))
    (merged, context, shard), (apart, _, _) = found

    sync = tensor_sync(context, shard, context.model.hidden)
    assert apart.forward_s == pytest.approx(merged.forward_s, rel=1e-12)
    assert apart.backward_s - merged.backward_s == pytest.approx(more * sync.reduce_s, rel=1e-9)


def test_computation_is_that_of_five_products_and_three_sums() -> None:
    strategy = Strategy(dp=1, tp=4, pp=1, mbs=1)
    works = []
    for context in contexts():
        shard = shard_of(context, table_of([strategy]), np.array([0]))
        works.append(layer_work(context, context.model.layers[0], shard))
    merged, apart = works
    layer, hidden, device = context.model.layers[0], float(context.model.hidden), context.cluster.device
    head, tokens = layer.attention.head_dim, float(context.workload.seq_len)
    widths = [
        [layer.attention.heads / 4 * head, *2 * [layer.attention.kv_heads / 4 * head]],
        2 * [layer.mlp.hidden / 4],
    ]

    def product_s(width: float) -> float:
        return float(gemm_time_s(device, context.workload.precision, tokens, width, hidden))

    further_s = sum(sum(map(product_s, block)) - product_s(sum(block)) for block in widths)
    assert further_s > 0
    assert apart.forward_s - merged.forward_s == pytest.approx(further_s, rel=1e-6)
    added_s = 3 * float(stream_operator_time_s(device, "residual_add", tokens * hidden, backward=True))
    assert (apart.input_gradient_s - merged.input_gradient_s).item() > added_s
