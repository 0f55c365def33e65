"""Systolic arrays, compiled programs, and clocks of architectures that no micro-benchmark was published of."""

from dataclasses import replace

import pytest

from forerun.simulator import score
from forerun.simulator.costs import attention_time_s, device_efficiency, gemm_time_s, stream_operator_time_s
from forerun.spaces.clusters.catalogue import simple_cluster
from forerun.spaces.clusters.device import load_device
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Context, parse_strategy, table_of
from forerun.spaces.workload import Workload


def step_s(device: str, **profile: object) -> float:
    cluster = simple_cluster(load_device(device), 8, intra_link=None, nic_bytes_per_s_per_node=50e9)
    context = Context(
        model=load_model("llama3-8b"),
        cluster=cluster,
        workload=Workload(global_batch=8, seq_len=4096, precision="bf16"),
        framework=replace(load_framework("fsdp"), **profile),  # type: ignore[arg-type]  # fields of a profile
    )
    return float(score(context, table_of([parse_strategy("tp1 pp1 dp8 mbs1 zero3 recompute=full")])).step_time_s[0])


def test_an_array_works_without_waves() -> None:
    """A product with one row more than fills a tile costs one row more, not a wave of tiles."""
    device = load_device("tpu-v4")
    one, other = (float(gemm_time_s(device, "bf16", m, 8192, 8192)) for m in (8192, 8200))
    assert other / one == pytest.approx(8200 / 8192, rel=0.1)
    assert device_efficiency(device).sustained_clock["half"] == 1.0


def test_heads_narrower_than_the_array_leave_a_part_idle() -> None:
    def share(device: str, head_dim: int) -> float:
        known = load_device(device)
        shape = {"batch": 1, "heads": 32, "kv_heads": 32, "seq_q": 32768, "seq_k": 32768}
        dims = {"head_dim": head_dim, "value_head_dim": head_dim}
        seconds = float(attention_time_s(known, "bf16", kernel="flash", causal=True, **shape, **dims))
        return 2 * 32 * 32768**2 * head_dim / seconds / known.peak("bf16")

    assert share("tpu-v5e", 128) == pytest.approx(share("tpu-v5e", 256), rel=0.02)
    assert share("tpu-v6e", 128) < 0.9 * share("tpu-v6e", 256)


def test_compiled_programs_have_no_eager_kernels_and_no_launches() -> None:
    operators = ("rmsnorm", "swiglu", "rope", "cross_entropy")
    assert step_s("tpu-v5p", eager=operators) == step_s("tpu-v5p", eager=())
    assert step_s("tpu-v5p", host_layer_s=1.0) == step_s("tpu-v5p", host_layer_s=0.0)
    assert step_s("h100-sxm", eager=operators) > step_s("h100-sxm", eager=())


@pytest.mark.parametrize("name", ["gaudi2", "gaudi3", "trainium2", "ascend-910b", "tpu-v4"])
def test_arithmetic_of_few_matrix_engines_does_not_bound_an_activation(name: str) -> None:
    device = load_device(name)
    elements = 8192 * 28672.0
    seconds = float(stream_operator_time_s(device, "gelu", elements))
    assert seconds < 2 * 4 * elements / (device.memory_bytes_per_s * device_efficiency(device).stream.memory_share)


def test_clocks_under_load_are_known_by_architecture() -> None:
    """Both generations of CDNA share theirs; a device's own goes before that of its architecture."""
    clocks = {name: device_efficiency(load_device(name)).sustained_clock["half"] for name in ("mi250x-gcd", "mi300x")}
    assert len(set(clocks.values())) == 1
    assert clocks["mi300x"] < device_efficiency(load_device("h100-sxm")).sustained_clock["half"]
    assert device_efficiency(load_device("v100-sxm2-32")).sustained_clock["half"] == 0.77
