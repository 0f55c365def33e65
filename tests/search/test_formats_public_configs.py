"""Public configurations import with the right strategy and with nothing lost (sources: public_configs/README.md)."""

import dataclasses
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from forerun.search.formats import Imported, import_files
from forerun.search.formats.command_line import options, split_command
from forerun.search.formats.settings import flatten
from forerun.search.formats.shell import read_script

FOLDER = Path(__file__).with_name("public_configs")


@dataclasses.dataclass(frozen=True)
class Case:
    """A file, what it is imported with, and what it says."""

    file: str
    format: str
    strategy: str
    workload: dict[str, Any]
    gpus: int | None = None
    entry: str | None = None
    notes: int = 0


CASES = (
    # 1,024 GPUs: the script's own comment says that one node is a placeholder.
    Case(
        "gpt3_175b.sh",
        "megatron-lm",
        "tp8 pp16 dp8 mbs1",
        {"global_batch": 1536, "seq_len": 2048, "precision": "fp16", "gpus": 1024},
        gpus=1024,
    ),
    Case(
        "llama3_8b_fp8.sh",
        "megatron-lm",
        "tp1 pp1 dp8 mbs1 zero1",
        {"global_batch": 128, "seq_len": 8192, "precision": "fp8", "gpus": 8},
        notes=2,
    ),
    Case(
        "llama3_70b.toml",
        "torchtitan-toml",
        "tp8 pp1 dp8 mbs8 zero3 sp recompute=full",
        {"global_batch": 64, "seq_len": 8192, "precision": "bf16", "gpus": 64},
        gpus=64,
    ),
    Case(
        "llama3_405b.toml",
        "torchtitan-toml",
        "tp8 pp1 dp16 mbs2 zero3 sp recompute=full",
        {"global_batch": 32, "seq_len": 8192, "precision": "fp8", "gpus": 128},
        gpus=128,
    ),
    Case(
        "deepseek_v3_671b.toml",
        "torchtitan-toml",
        "tp1 pp1 dp256 mbs4 zero3 recompute=selective",
        {"global_batch": 1024, "seq_len": 4096, "precision": "bf16", "gpus": 256},
        gpus=256,
    ),
    Case(
        "titan_registry.py",
        "torchtitan-0.3",
        "tp8 pp1 dp8 mbs8 zero3 sp recompute=full",
        {"global_batch": 64, "seq_len": 8192, "precision": "bf16", "gpus": 64},
        gpus=64,
        entry="llama3_70b",
    ),
    Case(
        "titan_registry.py",
        "torchtitan-0.3",
        "tp8 pp1 dp16 mbs2 zero3 sp recompute=full",
        {"global_batch": 32, "seq_len": 8192, "precision": "fp8", "gpus": 128},
        gpus=128,
        entry="llama3_405b",
    ),
    Case("ds_config_zero2.json", "deepspeed", "tp1 pp1 dp1 mbs1 zero2", {}),
    Case(
        "ds_config_zero3.json",
        "deepspeed",
        "tp1 pp1 dp16 mbs1 zero3",
        {"global_batch": 16, "precision": "fp16", "gpus": 16},
        gpus=16,
        notes=1,
    ),
    Case(
        "accelerate_tp_hsdp.yaml",
        "accelerate-fsdp",
        "tp2 pp1 dp4 mbs1 zero3 shard=2",
        {"global_batch": 4, "precision": "bf16", "gpus": 8},
    ),
    Case(
        "accelerate_nd.yaml",
        "accelerate-fsdp",
        "tp1 pp1 dp2 cp4 mbs1 zero3",
        {"global_batch": 2, "precision": "bf16", "gpus": 8},
    ),
    Case(
        "accelerate_fsdp2.yaml",
        "accelerate-fsdp",
        "tp1 pp1 dp2 mbs1 zero3",
        {"global_batch": 2, "precision": "fp32", "gpus": 2},
    ),
    Case(
        "accelerate_megatron.yaml",
        "accelerate-megatron",
        "tp1 pp1 dp1 mbs1",
        {"global_batch": 1, "precision": "fp32", "gpus": 1},
        notes=1,
    ),
    Case(
        "accelerate_fsdp1.yaml",
        "accelerate-fsdp",
        "tp1 pp1 dp2 mbs1 zero3",
        {"global_batch": 2, "precision": "bf16", "gpus": 2},
    ),
    Case(
        "accelerate_cp.yaml",
        "accelerate-fsdp",
        "tp1 pp1 dp1 cp8 mbs1 zero3 recompute=full",
        {"global_batch": 1, "precision": "bf16", "gpus": 8},
    ),
    # What DeepSpeed shards stands in another file, whose name says it; a default says so.
    Case(
        "accelerate_deepspeed.yaml",
        "accelerate-fsdp",
        "tp1 pp1 dp2 mbs1 zero1",
        {"global_batch": 2, "precision": "fp32", "gpus": 2},
    ),
    Case(
        "ds_config_bert.json",
        "deepspeed",
        "tp1 pp1 dp64 mbs16",
        {"global_batch": 4096, "precision": "fp16", "gpus": 64},
        gpus=64,
    ),
    Case(
        "ds_config_infinity.json",
        "deepspeed",
        "tp1 pp1 dp16 mbs4 zero3",
        {"global_batch": 64, "precision": "fp16", "gpus": 16},
        gpus=16,
        notes=2,
    ),
    Case(
        "mixtral_8x7b.sh",
        "megatron-lm",
        "tp1 pp1 dp2 ep2 mbs1 zero1",
        {"global_batch": 4, "seq_len": 256, "precision": "fp32", "gpus": 2},
        notes=1,
    ),
    Case(
        "nanotron_tiny_llama.yaml",
        "nanotron",
        "tp2 pp2 dp2 mbs2 sp split=by-cost",
        {"global_batch": 4, "seq_len": 256, "precision": "bf16", "gpus": 8},
    ),
    Case(
        "bridge_llama3_8b.yaml",
        "megatron-bridge",
        "tp2 pp2 dp2 mbs4 zero1",
        {"global_batch": 256, "precision": "bf16", "gpus": 8},
        gpus=8,
    ),
    Case(
        "bridge_deepseek_v3.yaml",
        "megatron-bridge",
        "tp2 pp8 dp64 ep64 mbs1 vpp4 zero1 sp recompute=mla_up_proj+mlp schedule=interleaved split=light-mtp",
        {"global_batch": 8192, "seq_len": 4096, "precision": "fp8", "gpus": 1024},
        gpus=1024,
    ),
    Case(
        "calculon_175b_seqsel.json",
        "calculon",
        "tp8 pp8 dp1 mbs1 vpp3 sp recompute=selective schedule=interleaved",
        {"global_batch": 64, "precision": "fp16", "gpus": 64},
    ),
    Case(
        "simumax_ep4_pp2.json",
        "simumax",
        "tp1 pp2 dp4 ep4 mbs1 zero1 recompute=selective",
        {"global_batch": 32, "seq_len": 4096, "precision": "bf16", "gpus": 8},
        notes=1,
    ),
)


def imported(case: Case) -> Imported:
    """Return what a case's file says."""
    return import_files([FOLDER / case.file], gpus=case.gpus, entry=case.entry)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file}:{case.entry}" if case.entry else case.file)
def test_strategy_and_workload(case: Case) -> None:
    found = imported(case)

    assert found.format == case.format
    assert str(found.strategy) == case.strategy
    assert found.workload == case.workload
    assert len(found.notes) == case.notes
    assert not found.unknown
    assert found.version


INTERPRETED = {
    "gpt3_175b.sh": "--num-layers --hidden-size --num-attention-heads --seq-length --max-position-embeddings "
    "--micro-batch-size --global-batch-size --fp16 --attention-backend --tensor-model-parallel-size "
    "--pipeline-model-parallel-size",
    "llama3_70b.toml": "model.name model.flavor training.local_batch_size training.seq_len activation_checkpoint.mode "
    "compile.enable parallelism.data_parallel_replicate_degree parallelism.data_parallel_shard_degree "
    "parallelism.tensor_parallel_degree parallelism.pipeline_parallel_degree parallelism.context_parallel_degree "
    "float8.enable_fsdp_float8_all_gather",
    "ds_config_zero3.json": "fp16.enabled zero_optimization.stage zero_optimization.offload_optimizer.device "
    "zero_optimization.overlap_comm zero_optimization.offload_param.device",
    "accelerate_nd.yaml": "distributed_type num_processes mixed_precision fsdp_config.fsdp_activation_checkpointing "
    "fsdp_config.fsdp_reshard_after_forward fsdp_config.fsdp_version fsdp_config.fsdp_offload_params "
    "parallelism_config.parallelism_config_cp_size parallelism_config.parallelism_config_dp_replicate_size "
    "parallelism_config.parallelism_config_dp_shard_size parallelism_config.parallelism_config_tp_size",
    "accelerate_deepspeed.yaml": "distributed_type num_processes deepspeed_config.deepspeed_config_file",
    "ds_config_bert.json": "train_batch_size train_micro_batch_size_per_gpu fp16.enabled",
    "bridge_llama3_8b.yaml": "model.tensor_model_parallel_size model.pipeline_model_parallel_size "
    "model.context_parallel_size train.global_batch_size train.micro_batch_size ddp.grad_reduce_in_fp32",
}
"""Settings that become the strategy or a fact; all others of the file must be listed."""


@pytest.mark.parametrize("file", INTERPRETED)
def test_every_setting_is_interpreted_or_listed(file: str) -> None:
    found = import_files([FOLDER / file])
    names = set(_names(FOLDER / file))

    assert names - {*found.other, *found.unmodelled, *found.unknown} == set(INTERPRETED[file].split())
    assert {*found.other, *found.unknown} <= names


def _names(path: Path) -> Iterator[str]:
    """Yield the names of all settings of a file, as they are listed."""
    text = path.read_text()
    if path.suffix == ".sh":
        commands = [split_command(command)[1] for command in read_script(text, path.name).commands]
        yield from ("--" + name for command in commands for name in options(command)[0])
        return
    data = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    data = json.loads(text) if path.suffix == ".json" else data
    yield from flatten({key.removesuffix("_config") if "bridge" in path.name else key: v for key, v in data.items()})


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("gpt3_175b.sh", "--micro-batch-size 1", "--micro-batch-size 1 --made-up 3"),
        ("llama3_70b.toml", "[parallelism]", "[parallelism]\nmade_up = 3"),
        ("ds_config_zero3.json", '"steps_per_print"', '"made_up": 3, "steps_per_print"'),
        ("accelerate_nd.yaml", "machine_rank: 0", "machine_rank: 0\nmade_up: 3"),
        ("accelerate_deepspeed.yaml", "deepspeed_config:", "deepspeed_config:\n  made_up: 3"),
        ("nanotron_tiny_llama.yaml", "parallelism:", "parallelism:\n  made_up: 3"),
        ("bridge_llama3_8b.yaml", "model_config:", "model_config:\n  made_up: 3"),
        ("calculon_175b_seqsel.json", '"num_procs"', '"made_up": 3, "num_procs"'),
        ("simumax_ep4_pp2.json", '"seq_len"', '"made_up": 3, "seq_len"'),
    ],
)
def test_an_unknown_setting_is_listed(file: str, old: str, new: str, tmp_path: Path) -> None:
    text = (FOLDER / file).read_text()
    assert old in text
    path = tmp_path / file
    path.write_text(text.replace(old, new, 1))

    unknown = import_files([path]).unknown

    assert [(name.replace("-", "_").lstrip("_").split(".")[-1], str(value)) for name, value in unknown.items()] == [
        ("made_up", "3")
    ]


def test_a_slip_of_a_known_flag_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("torchrun pretrain_gpt.py --num-layers 4 --use-distributd-optimizer --lr 1e-4\n")

    found = import_files([path], gpus=8)

    assert set(found.unknown) == {"--use-distributd-optimizer"}
    assert set(found.other) == {"--lr"}
