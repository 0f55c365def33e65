"""Launches as the files of launchers that are tables: the same keys, written.

Every file names what it must, and nothing that the tool's own defaults say as well; models are those of the catalogue.
"""

import json
from typing import Any

from forerun.search.formats.adapters import hub_modules
from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.launchers import TORCHRUN, harmless, scripts
from forerun.search.formats.tables import axolotl, llama_factory, neox
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.models.model import FeedForward, MixtureOfExperts
from forerun.spaces.strategies import Recompute

C4 = {"path": "allenai/c4", "name": "en", "split": "train", "type": "completion"}
ALPACA = {"path": "tatsu-lab/alpaca", "split": "train", "type": "alpaca"}
HALF = {"bf16": {"bf16": True}, "fp16": {"fp16": True}, "fp32": {}}


def write_neox(launch: Launch) -> Files:
    """Return one YAML file and the script that hands it to ``deepy.py``."""
    s, workload, layer = launch.strategy, launch.workload, launch.model.layers[-1]
    data: dict[str, Any] = {
        "pipe_parallel_size": s.pp,
        "model_parallel_size": s.tp,
        "sequence_parallel": s.sp,
        "num_nodes": launch.nodes,
        "num_gpus": launch.devices_used_per_node,
        **_neox_model(launch),
        "seq_length": workload.seq_len,
        "max_position_embeddings": workload.seq_len,
        "train_batch_size": workload.global_batch,
        "train_micro_batch_size_per_gpu": s.mbs,
        "gradient_accumulation_steps": launch.microbatches,
        "zero_optimization": {"stage": s.zero, "overlap_comm": True, "contiguous_gradients": True},
        "checkpoint_activations": s.recompute == Recompute.FULL,
        "precision": {"bf16": "bfloat16", "fp16": "fp16", "fp32": "fp32"}[workload.precision],
        "optimizer": {"type": "Adam", "params": {"lr": 1.0e-4, "betas": [0.9, 0.95], "eps": 1.0e-8}},
        "train_iters": 100,
        "lr_decay_iters": 100,
        "data_path": "data/text_document",
        "tokenizer_type": "HFTokenizer",
        "vocab_file": "tokenizer.json",
    }
    if s.ep > 1:
        data["moe_expert_parallel_size"] = s.ep
    if launch.nodes > 1:
        data |= {"launcher": "slurm", "deepspeed_slurm": True, "no_ssh_check": True}
    assert layer.mixer is not None
    text = dump_yaml(data, f"{launch.name}: {neox.LAUNCHER.title}, {s}", "name the data and the tokenizer")
    several = launch.nodes > 1
    hosts = [
        "# Its launcher starts all nodes from the first one, by srun. Without Slurm drop launcher and deepspeed_slurm",
        f"# from {NEOX_MAIN}, and name a hostfile in DLTS_HOSTFILE.",
        'if [ -z "${DLTS_HOSTFILE:-}" ]; then',
        '    NODES="${SLURM_JOB_NODELIST:?several nodes need Slurm, or a hostfile named in DLTS_HOSTFILE}"',
        '    export DLTS_HOSTFILE="$PWD/hostfile-${SLURM_JOB_ID:-0}"',
        '    scontrol show hostnames "$NODES" | sed "s/$/ slots=$GPUS_PER_NODE/" > "$DLTS_HOSTFILE"',
        "fi",
        "",
    ]
    path = ['CONFIG="$PWD"', 'cd "${NEOX_PATH:-.}"']
    command = [f'python ./deepy.py train.py "$CONFIG/{NEOX_MAIN}"']
    before = [*(hosts if several else ()), *path]
    return {NEOX_MAIN: text, **scripts(launch, neox.LAUNCHER.title, command, before=before, once=several)}


def _neox_model(launch: Launch) -> dict[str, Any]:
    """Return the sizes of a model by NeoX's names."""
    model, layer = launch.model, launch.model.layers[-1]
    attention, mlp = layer.attention, layer.feed_forward
    found: dict[str, Any] = {
        "num_layers": model.layer_count,
        "hidden_size": model.hidden,
        "num_attention_heads": attention.heads,
        "num_kv_heads": attention.kv_heads,
        "no_weight_tying": not model.tied_embeddings,
        "norm": "layernorm" if layer.norm_bias else "rmsnorm",
        "pos_emb": "learned" if model.learned_positions else "rotary",
        "activation": "swiglu" if mlp.gated else "gelu",
    }
    if isinstance(mlp, FeedForward):
        found["intermediate_size"] = mlp.hidden
    elif isinstance(mlp, MixtureOfExperts):
        found |= {"moe_num_experts": mlp.experts, "moe_top_k": mlp.top_k, "intermediate_size": mlp.expert_hidden}
    return found


def write_llama_factory(launch: Launch) -> Files:
    """Return the YAML, DeepSpeed's JSON where states are sharded, and the script."""
    s, workload, tuned = launch.strategy, launch.workload, fine_tunes(launch)
    data: dict[str, Any] = {
        "model_name_or_path": harmless(launch.model.name),
        "stage": "sft" if tuned else "pt",
        "do_train": True,
        "finetuning_type": "full",
        "dataset": "alpaca_en_demo" if tuned else "c4_demo",
        "dataset_dir": "REMOTE:llamafactory/demo_data",
        "template": "default",
        "cutoff_len": workload.seq_len,
        "packing": True,
        **({"neat_packing": True} if launch.packed else {}),
        "per_device_train_batch_size": s.mbs,
        "gradient_accumulation_steps": launch.microbatches,
        "disable_gradient_checkpointing": s.recompute != Recompute.FULL,
        "output_dir": "saves",
        "max_steps": 100,
        **HALF[workload.precision],
    }
    if rank := launch.tuning.rank:
        data |= {"finetuning_type": "lora", "lora_rank": rank, "lora_target": ",".join(hub_modules(launch))}
    files: dict[str, str] = {}
    if s.zero:
        data["deepspeed"] = DS_MAIN
        automatic = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}}
        sharding = {"stage": s.zero, "overlap_comm": True, "contiguous_gradients": True, "reduce_scatter": True}
        both: dict[str, Any] = {**automatic, "fp16": {"enabled": "auto"}, "gradient_accumulation_steps": "auto"}
        files[DS_MAIN] = json.dumps({**both, "zero_optimization": sharding}, indent=2) + "\n"
    title = f"LLaMA-Factory {llama_factory.LAUNCHER.version}"
    starter = [
        'FORCE_TORCHRUN=1 NNODES="$NNODES" NPROC_PER_NODE="$GPUS_PER_NODE" NODE_RANK="$NODE_RANK"',
        'MASTER_ADDR="$MASTER_ADDR" MASTER_PORT="$MASTER_PORT"',
        f"llamafactory-cli train {FACTORY_MAIN}",
    ]
    remarks = (
        "model_name_or_path: a folder or a name on the hub",
        "dataset_dir: on the hub; where nodes do not reach it, the folder data of LLaMA-Factory",
    )
    text = dump_yaml(data, f"{launch.name}: {title}, {s}", *remarks)
    return {FACTORY_MAIN: text, **files, **scripts(launch, title, starter)}


def fine_tunes(launch: Launch) -> bool:
    """Whether a launch is a fine-tuning: of adapters, or on documents that are packed."""
    return bool(launch.tuning.rank) or launch.packed


def write_axolotl(launch: Launch) -> Files:
    """Return the YAML, with FSDP 2 where states are sharded, and the script."""
    s, workload = launch.strategy, launch.workload
    data: dict[str, Any] = {
        "base_model": harmless(launch.model.name),
        "datasets": [ALPACA if fine_tunes(launch) else C4],
        "output_dir": "outputs",
        "sequence_len": workload.seq_len,
        "attn_implementation": "flash_attention_2",
        "sample_packing": True,
        "pad_to_sequence_len": True,
        "micro_batch_size": s.mbs,
        "gradient_accumulation_steps": launch.microbatches,
        "max_steps": 100,
        "optimizer": "adamw_torch_fused",
        "learning_rate": 1.0e-4,
        "lr_scheduler": "cosine",
        "gradient_checkpointing": s.recompute == Recompute.FULL,
        **HALF[workload.precision],
    }
    if rank := launch.tuning.rank:
        data |= {"adapter": "lora", "lora_r": rank, "lora_alpha": 2 * rank}
        data["lora_target_modules"] = hub_modules(launch)
    if s.tp > 1:
        data["tensor_parallel_size"] = s.tp
    if s.cp > 1:
        data["context_parallel_size"] = s.cp
    if s.zero:
        data |= {"dp_shard_size": s.dp // s.copies, "dp_replicate_size": s.copies, "fsdp_version": 2}
        data["fsdp_config"] = {
            "reshard_after_forward": s.zero == 3,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "state_dict_type": "SHARDED_STATE_DICT",
            "offload_params": False,
        }
    title = f"axolotl {axolotl.LAUNCHER.version}"
    text = dump_yaml(data, f"{launch.name}: {title}, {s}", "base_model: a folder or a name on the hub")
    return {AXOLOTL_MAIN: text, **scripts(launch, title, [*TORCHRUN, f"-m axolotl.cli.train {AXOLOTL_MAIN}"])}


NEOX_MAIN, FACTORY_MAIN, DS_MAIN = "gpt_neox.yml", "llama_factory.yaml", "ds_config.json"
AXOLOTL_MAIN = "axolotl.yaml"
