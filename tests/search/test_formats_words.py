"""Words of launch files that no reader of the same table can check, because it would misread what was miswritten."""

import ast
import dataclasses
import re

import pytest
from forerun_launches import launch_of

from forerun.search.formats import format_named
from forerun.spaces.errors import RequestError

WRITTEN = [
    ("megatron-lm", "tp2 dp8 mbs1 zero1 sp", "#SBATCH --ntasks-per-node=1"),
    ("gpt-neox", "tp2 dp8 mbs1 zero1", "#SBATCH --ntasks-per-node=8"),
    ("megatron-lm", "tp2 dp8 mbs1 zero1 sp recompute=full", "--recompute-granularity full"),
    ("megatron-lm", "tp2 dp8 mbs1 zero1 sp recompute=full", "--recompute-method uniform"),
    ("megatron-lm", "pp5 dp2 mbs1 zero1 split=light-last", "--account-for-loss-in-pipeline-split"),
    ("megatron-lm", "tp2 dp8 ep4 mbs1 zero1 sp", "--expert-tensor-parallel-size 1"),
    ("nanotron", "tp2 dp8 mbs1 zero1 sp", "tp_mode: REDUCE_SCATTER"),
    ("nanotron", "tp2 dp8 mbs1 zero1", "tp_mode: ALL_REDUCE"),
    ("torchtitan-toml", "dp8 mbs2 zero3", 'fsdp_reshard_after_forward = "always"'),
    ("torchtitan-toml", "dp8 mbs2 zero2", 'fsdp_reshard_after_forward = "never"'),
    ("torchtitan-toml", "pp13 mbs1 split=light-ends", "pipeline_parallel_first_stage_less_layers = 1"),
    ("torchtitan-toml", "pp2 dp4 mbs2 zero2", "local_batch_size = 32"),  # all microbatches of a replica
    ("torchtitan-toml", "pp2 dp4 mbs2 zero2", "pipeline_parallel_microbatch_size = 2"),
    ("accelerate-fsdp", "dp8 mbs2 zero3", "fsdp_reshard_after_forward: true"),
    ("accelerate-fsdp", "dp8 mbs2 zero2", "fsdp_reshard_after_forward: false"),
    ("torch", "dp8 mbs2 zero3", "RESHARD = True"),
    ("torch", "dp8 mbs2 zero2", "RESHARD = False"),
    ("deepspeed", "dp8 mbs2 zero3", '"gradient_accumulation_steps": 8'),
    ("maxtext", "tp4 dp4 mbs1 zero3 sp", "per_device_batch_size: 0.25"),
    ("maxtext", "pp2 tp2 dp2 mbs1 zero3 sp schedule=gpipe", "per_device_batch_size: 16"),
    ("maxtext", "tp4 dp4 mbs1 zero3 sp", "gradient_accumulation_steps: 32"),
]


@pytest.mark.parametrize(("name", "strategy", "word"), WRITTEN, ids=[f"{name}: {word}" for name, _, word in WRITTEN])
def test_a_launch_has_the_word_of_the_framework(name: str, strategy: str, word: str) -> None:
    assert word in "\n".join(format_named(name).express(launch_of(strategy)).values())


@pytest.mark.parametrize(
    ("vendor", "device"), [("NVIDIA", "cuda nccl"), ("AMD", "cuda nccl"), ("Intel", "hpu hccl"), ("Huawei", "npu hccl")]
)
@pytest.mark.parametrize("zero", [0, 2])
def test_pytorch_names_the_devices_of_the_vendor(vendor: str, device: str, zero: int) -> None:
    launch = dataclasses.replace(launch_of(f"dp8 mbs2 zero{zero}"), vendor=vendor)
    text = format_named("torch").express(launch)["parallel.py"]
    named = {name for name in ("cuda", "nccl", "hpu", "hccl", "npu") if re.search(rf"\b{name}\b", text)}

    assert named == {*device.split()}
    ast.parse(text)


@pytest.mark.parametrize(
    ("name", "strategy", "law"),
    [
        ("deepspeed", "pp2 dp4 mbs1 zero2", "runs with ZeRO-1 at most"),
        ("torchtitan-toml", "tp2 dp4 mbs1 zero2", "tensor parallel includes sequence parallel"),
        ("accelerate-fsdp", "dp8 mbs1 zero1", "FSDP shards gradients as well"),
        ("nanotron", "dp8 mbs1 zero2", "shards optimizer states (zero_stage 1) and no more"),
    ],
)
def test_what_a_framework_does_not_run_is_refused_with_its_law(name: str, strategy: str, law: str) -> None:
    with pytest.raises(RequestError) as refused:
        format_named(name).express(launch_of(strategy))
    assert law in str(refused.value)


@pytest.mark.parametrize(("precision", "word"), [("fp8", "hybrid"), ("mxfp8", "e4m3")])
def test_eight_bits_of_megatron_are_hybrid_or_of_blocks(precision: str, word: str) -> None:
    files = format_named("megatron-lm").express(launch_of("tp2 dp8 mbs1 zero1 sp", precision=precision))
    assert f"--fp8-format {word}" in files["launch.sh"]


@pytest.mark.parametrize("moe_imbalance", [1.0, 1.5])
def test_the_router_is_forced_to_balance_where_it_was_predicted_to(moe_imbalance: float) -> None:
    files = format_named("megatron-lm").express(launch_of("dp8 ep4 mbs1 zero1", moe_imbalance=moe_imbalance))
    assert ("--moe-router-force-load-balancing" in files["launch.sh"]) == (moe_imbalance == 1)
