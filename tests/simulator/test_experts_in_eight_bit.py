"""What eight-bit training adds to a layer with experts: casts, and what fused experts leave out."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import moe_model, request, small_cluster, small_device

from forerun.simulator.costs import stream_operator, stream_operator_time_s
from forerun.simulator.layer.blocks import layer_work
from forerun.simulator.layer.shard import Shard, shard_of
from forerun.simulator.layer.times import expert_launches_s, host_passes_s
from forerun.spaces.models.model import MixtureOfExperts
from forerun.spaces.strategies import Context, parse_strategy, table_of

PEAKS = {"bf16": 989e12, "fp8": 1979e12, "mxfp8": 1979e12}


def training_at(precision: str, **facts: object) -> Context:
    """A mixture on devices that know eight bit."""
    base = request(model=moe_model(), cluster=small_cluster(small_device(peak_flops_per_s=PEAKS)))
    framework = replace(base.framework, **({"host_expert_s": 5e-3, "pads_experts": False} | facts))  # type: ignore[arg-type]
    return replace(base, workload=replace(base.workload, precision=precision), framework=framework)


def shard(context: Context) -> Shard:
    return shard_of(context, table_of([parse_strategy("ep4 dp4 mbs1")]), np.array([0]))


@pytest.mark.parametrize("precision", ["bf16", "mxfp8", "fp8"])
def test_experts_take_launches_of_their_own_in_every_precision(precision: str) -> None:
    context = training_at(precision)
    assert expert_launches_s(context) == 5e-3
    layers = np.array([[0.0], [3.0]])  # kinds: dense, with experts
    free = replace(context, framework=replace(context.framework, host_expert_s=0.0))
    took, dense = (host_passes_s(one, layers, np.zeros(1, dtype=np.int64), np.ones(1), 1.0) for one in (context, free))
    assert sum(took) - sum(dense) == pytest.approx(3 * 5e-3, rel=1e-9)


def test_a_faster_host_waits_for_token_counts_as_long() -> None:
    context = training_at("fp8")
    device = replace(context.cluster.device, host_speed=2.0)
    assert expert_launches_s(replace(context, cluster=replace(context.cluster, device=device))) == 5e-3


def test_a_cast_with_one_scale_reads_its_tensor_twice() -> None:
    plain, scaled = stream_operator("cast").forward, stream_operator("cast_scaled").forward
    assert (plain.bytes_per_element, plain.kernels) == (2 + 1 + 1, 1)
    assert (scaled.bytes_per_element, scaled.kernels) == (2 + 2 + 1 + 1, 2)


@pytest.mark.parametrize("precision", ["bf16", "mxfp8", "fp8"])
def test_fused_experts_leave_out_the_activation_and_its_casts(precision: str) -> None:
    apart, fused = training_at(precision), training_at(precision, fused_experts=True)
    layer = apart.model.layers[-1]
    assert isinstance(layer.mlp, MixtureOfExperts)
    with_kernels, without = (layer_work(one, layer, shard(one)) for one in (apart, fused))
    device, mlp = apart.cluster.device, layer.mlp
    inner = float(shard(apart).tokens[0]) * mlp.top_k * mlp.expert_hidden
    saved_s = [stream_operator_time_s(device, "swiglu", inner, backward=backward) for backward in (False, True)]
    if precision != "bf16":
        saved_s[0] = saved_s[0] + stream_operator_time_s(device, "cast", inner)
        saved_s[1] = saved_s[1] + stream_operator_time_s(device, "cast", 2 * inner, backward=True)
    assert with_kernels.forward_s - without.forward_s == pytest.approx(float(saved_s[0]), rel=1e-9)
    assert with_kernels.input_gradient_s - without.input_gradient_s == pytest.approx(float(saved_s[1]), rel=1e-9)
    assert np.array_equal(with_kernels.weight_gradient_s, without.weight_gradient_s)


@pytest.mark.parametrize(("precision", "fused", "copies"), [("bf16", False, 0), ("fp8", False, 2), ("mxfp8", True, 0)])
def test_eight_bit_rows_of_experts_are_padded_by_copies(precision: str, fused: bool, copies: int) -> None:
    tight, padded = (training_at(precision, fused_experts=fused, pads_experts=one) for one in (False, True))
    layer = tight.model.layers[-1]
    assert isinstance(layer.mlp, MixtureOfExperts)
    without, with_copies = (layer_work(one, layer, shard(one)) for one in (tight, padded))
    rows = float(shard(tight).tokens[0]) * layer.mlp.top_k * tight.model.hidden
    copy_s = float(stream_operator_time_s(tight.cluster.device, "copy", rows))
    assert with_copies.forward_s - without.forward_s == pytest.approx(copies * copy_s, abs=1e-12)
    assert with_copies.input_gradient_s - without.input_gradient_s == pytest.approx(copies * copy_s, abs=1e-12)
