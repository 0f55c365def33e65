"""Shared experts beside the all-to-all, and experts as one grouped product or module by module."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import moe_model, request

from forerun.search.formats import Launch, import_texts, writable
from forerun.simulator.costs import launched_s
from forerun.simulator.layer.blocks import layer_operators, layer_work
from forerun.simulator.layer.communication import layer_exchange
from forerun.simulator.layer.shard import Shard, shard_of
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Context, Recompute, Software, parse_strategy, table_of
from forerun.spaces.strategies.software import can_turn_on
from forerun.spaces.workload import Workload


def context(**settings: str) -> Context:
    """DeepSeek-V3, which has a shared expert, on H100."""
    return Context(
        model=load_model("deepseek-v3"),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=512, seq_len=4096),
        framework=switched(load_framework("megatron-lm"), {"dispatcher": "alltoall", **settings}),
    )


def shard(made: Context) -> Shard:
    return shard_of(made, table_of([parse_strategy("pp4 dp64 ep64 mbs1")]), np.array([0]))


def test_shared_experts_hide_as_much_as_they_take_and_are_slowed() -> None:
    plain, beside = context(), context(**{"shared-expert-overlap": "on"})
    layer = plain.model.layers[-1]
    work = layer_work(plain, layer, shard(plain))
    shared_s = float(work.modules_s[Recompute.SHARED_EXPERTS][0])
    before, after = (layer_exchange(one, layer, shard(one), work) for one in (plain, beside))
    open_s = float(before.expert_forward_s[0])
    held = 24.0 / (132.0 - 24.0)  # multiprocessors of the all-to-all over the others
    assert 0 < shared_s < open_s
    assert float(after.expert_forward_s[0]) == pytest.approx(open_s - (1 - held) * shared_s)
    back_s = float(before.expert_backward_s[0])
    assert float(after.expert_backward_s[0]) == pytest.approx(back_s - (1 - held) * min(2 * shared_s, back_s))


def test_a_model_without_shared_experts_hides_nothing() -> None:
    plain, beside = (replace(one, model=load_model("qwen3-30b-a3b")) for one in (context(), context()))
    beside = replace(beside, framework=switched(beside.framework, {"shared-expert-overlap": "on"}))
    work = layer_work(plain, plain.model.layers[-1], shard(plain))
    before, after = (layer_exchange(one, one.model.layers[-1], shard(one), work) for one in (plain, beside))
    assert float(before.expert_forward_s[0]) == float(after.expert_forward_s[0])


def test_shared_experts_and_another_microbatch_are_not_beside_the_same_traffic() -> None:
    with pytest.raises(RequestError, match="shared-expert-overlap=on requires"):
        context(**{"shared-expert-overlap": "on", "moe-overlap": "on"})
    assert can_turn_on(context().framework) & Software.MOE_OVERLAP
    assert not can_turn_on(context(**{"shared-expert-overlap": "on"}).framework) & Software.MOE_OVERLAP


def products_s(made: Context, layout: str) -> tuple[float, float]:
    """Seconds and kernels of the experts' products in all directions."""
    cut = shard_of(made, table_of([parse_strategy(layout)]), np.array([0]))
    records = [one.at(0) for one in layer_operators(made, made.model.layers[-1], cut).records]
    ours = [one for one in records if one.name.startswith("experts product")]
    return sum(float(one.seconds) for one in ours), sum(float(one.kernels) for one in ours)


def test_experts_one_after_another_take_a_launch_each_at_least() -> None:
    together = replace(request(moe_model(experts=64), seq_len=128), cluster=load_cluster("dgx-h100"))
    apart = replace(together, framework=switched(together.framework, {"grouped-gemm": "off"}))
    grouped, alone = products_s(together, "dp8 ep2 mbs1"), products_s(apart, "dp8 ep2 mbs1")
    assert (grouped[1], alone[1]) == (6, 6 * 32)
    assert alone[0] >= 6 * 32 * float(launched_s(apart.cluster.device, 1.0)) > grouped[0]


def test_large_experts_take_about_as_long_one_by_one() -> None:
    large = context()
    apart = replace(large, framework=switched(large.framework, {"grouped-gemm": "off"}))
    layout = "pp4 dp64 ep64 mbs4"
    assert products_s(apart, layout)[0] == pytest.approx(products_s(large, layout)[0], rel=0.02)


@pytest.mark.parametrize("settings", [{"grouped-gemm": "off"}, {"shared-expert-overlap": "on"}])
def test_both_are_written_and_read(settings: dict[str, str]) -> None:
    wanted = {"dispatcher": "alltoall", **settings}
    launch = Launch(
        strategy=parse_strategy("dp8 ep4 mbs1 zero1"),
        model=moe_model(),
        workload=Workload(global_batch=64, seq_len=2048, precision="bf16"),
        devices_per_node=8,
        switches=wanted,
    )
    for item in writable():
        if item.name in ("megatron-lm", "megatron-bridge"):
            found = import_texts(item.express(launch)).switches
            assert {name: found[name] for name in wanted} == wanted
