"""GPT-NeoX 2: YAML files that a run takes together (``deepy.py train.py 20B.yml local_setup.yml``).

Source: ``megatron/neox_arguments/neox_args.py`` and ``deepspeed_args.py`` of EleutherAI/gpt-neox: names
have dashes or underscores, a pipeline of 0 stages is one of 1, replicas fill the devices.
"""

import re
from typing import Any

from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import RECOMPUTED, YES, Launcher, LaunchFacts, LaunchKey, switched_on
from forerun.search.formats.launchers import scripts
from forerun.search.formats.limits import (
    COMMON,
    DEFAULT_PLACEMENT,
    NO_SELECTIVE,
    SHARED_BY_ALL,
    fixed,
    only,
    precisions,
    without,
)
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.syntax import documents
from forerun.search.formats.tables.limits_of import NO_DIVIDING, NO_ETP, ONE_STAGE_SPLIT
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.models.model import FeedForward, MixtureOfExperts
from forerun.spaces.strategies import Recompute, Schedule

MAIN = "gpt_neox.yml"

HARMLESS = re.compile(
    r"optimizer|scheduler|zero_|steps_per|wall_clock|fp16|bf16|fp32|amp|tokenizer|vocab|merge_file|save|load|data|train_|"
    r"valid_|test_|label_data|split|norm|layernorm|rms_|pos_emb|rotary|no_weight|gpt_j|output_layer|activation|attention|"
    r"sparsity|scaled_|bias_|rope|init_|use_|min_lr|lr_|weight_decay|hidden_dropout|gradient_|warmup|distributed_|eval|"
    r"log|tensorboard|wandb|comet|keep_|checkpoint_|partition_|synchronize|contiguous|hostfile|launcher|deepspeed|master|"
    r"make_vocab|override|finetune|iteration|text_gen|sample|temperature|top_|maximum|return_|recompute|include|exclude|"
    r"pipe_partition|global_num|user_|local_|detect|comment|seed|clip|short_seq|num_workers|mup|coord|moe_|expert|num_layers|"
    r"intermediate|ffn|apply_|masked_|mmap|mem|profile|autotuning|flops|comms|curriculum|adlr|softmax|soft_prompt|"
    r"extra_save|s3_|git|rank|is_|do_|dynamic|batch_size|world|char|cpu_|no_ssh|force_multi|sliding|pack|reset|onnx|"
    r"transformer_|te_|mamba|rwkv|lion|adam|sgd|opt_pos|hysteresis|prescale|communication|allreduce|separated|norm_|"
    r"hidden_size|max_pos|qk_|layer_|enforce|routing|dmoe|params_dtype|omit|preference|kto|dpo|rm_|reward|parallel_output|causal"
)


def adjust(facts: LaunchFacts) -> None:
    """Say what the checkpointing of several layers at once is read as."""
    layers = facts.settings.whole("checkpoint_num_layers", least=0)
    if facts.get("recompute") and (layers or 1) > 1:
        facts.notes.append(f"recompute from every layer number {layers} is read as recompute=full: from every layer")
    if facts.settings.flag("partition_activations") and facts.get("recompute"):
        facts.notes.append(
            "partition_activations shares saved activations out over tensor ranks; not part of a strategy"
        )


LAUNCHER = Launcher(
    name="gpt-neox",
    version="2",
    title="GPT-NeoX",
    keys=(
        LaunchKey(names=("pipe_parallel_size",), decides="pp", least=0),
        LaunchKey(names=("model_parallel_size",), decides="tp", least=0),
        LaunchKey(names=("context_parallel_size",), decides="cp"),
        LaunchKey(names=("moe_expert_parallel_size",), decides="ep"),
        LaunchKey(names=("sequence_parallel",), decides="sp", words=YES),
        LaunchKey(
            names=("train_micro_batch_size_per_gpu",), decides="mbs", meaning="sequences of a replica and microbatch"
        ),
        LaunchKey(names=("gradient_accumulation_steps", "gas"), decides="accumulation"),
        LaunchKey(names=("train_batch_size",), decides="global_batch"),
        LaunchKey(names=("seq_length",), decides="seq_len"),
        LaunchKey(
            names=("zero_optimization.stage", "zero_stage"),
            decides="zero",
            words={str(stage): stage for stage in range(4)},
        ),
        LaunchKey(names=("checkpoint_activations",), decides="recompute", words=RECOMPUTED),
        LaunchKey(
            names=("precision",),
            decides="precision",
            words={"bfloat16": "bf16", "bf16": "bf16", "fp16": "fp16", "float16": "fp16", "fp32": "fp32", "none": None},
        ),
        LaunchKey(
            names=("bf16.enabled",), decides="precision", meaning="training in bfloat16", words=switched_on("bf16")
        ),
        LaunchKey(
            names=("fp16.enabled",), decides="precision", meaning="training in float16", words=switched_on("fp16")
        ),
        LaunchKey(names=("num_nodes",), decides="nodes", meaning="nodes that are started", least=-1),
        LaunchKey(names=("num_gpus",), decides="devices_per_node"),
        LaunchKey(names=("num_layers",), decides="model.layers"),
        LaunchKey(names=("hidden_size",), decides="model.hidden"),
        LaunchKey(names=("num_attention_heads",), decides="model.heads"),
        LaunchKey(names=("num_kv_heads",), decides="model.kv_heads"),
        LaunchKey(names=("num_experts", "moe_num_experts"), decides="model.experts"),
    ),
    syntax=documents,
    marks=lambda source: (
        source.suffix in (".yml", ".yaml", ".json")
        and re.search(r"[\"']?(pipe[-_]parallel[-_]size)[\"']?\s*:", source.text) is not None
    ),
    harmless=lambda name: HARMLESS.match(name) is not None,
    adjust=adjust,
)


def _pipelined_zero(launch: Launch) -> bool:
    return launch.strategy.pp > 1 and launch.strategy.zero > 1


LIMITS = (
    *COMMON,
    decoders_only("GPT-NeoX"),
    without("cp", "the configuration has no such degree in its released versions"),
    only("schedule", (Schedule.ONE_F_ONE_B,), "DeepSpeed's pipeline runs 1F1B", schedule=Schedule.ONE_F_ONE_B, vpp=1),
    NO_DIVIDING,
    ONE_STAGE_SPLIT,
    fixed(_pipelined_zero, "zero > 1 with pp > 1: DeepSpeed's pipeline keeps gradients whole", zero=1),
    NO_SELECTIVE,
    NO_ETP,
    DEFAULT_PLACEMENT,
    SHARED_BY_ALL,
    precisions(("bf16", "fp16", "fp32"), "the configuration has bfloat16, float16 and float32"),
)


def write(launch: Launch) -> Files:
    """Return one YAML file and the script that hands it to ``deepy.py``."""
    s, workload, layer = launch.strategy, launch.workload, launch.model.layers[-1]
    data: dict[str, Any] = {
        "pipe_parallel_size": s.pp,
        "model_parallel_size": s.tp,
        "sequence_parallel": s.sp,
        "num_nodes": launch.nodes,
        "num_gpus": launch.devices_used_per_node,
        **_model(launch),
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
    text = dump_yaml(data, f"{launch.name}: {LAUNCHER.title}, {s}", "name the data and the tokenizer")
    several = launch.nodes > 1
    hosts = [
        "# Its launcher starts all nodes from the first one, by srun. Without Slurm drop launcher and deepspeed_slurm",
        f"# from {MAIN}, and name a hostfile in DLTS_HOSTFILE.",
        'if [ -z "${DLTS_HOSTFILE:-}" ]; then',
        '    NODES="${SLURM_JOB_NODELIST:?several nodes need Slurm, or a hostfile named in DLTS_HOSTFILE}"',
        '    export DLTS_HOSTFILE="$PWD/hostfile-${SLURM_JOB_ID:-0}"',
        '    scontrol show hostnames "$NODES" | sed "s/$/ slots=$GPUS_PER_NODE/" > "$DLTS_HOSTFILE"',
        "fi",
        "",
    ]
    path = ['CONFIG="$PWD"', 'cd "${NEOX_PATH:-.}"']
    command = [f'python ./deepy.py train.py "$CONFIG/{MAIN}"']
    before = [*(hosts if several else ()), *path]
    return {MAIN: text, **scripts(launch, LAUNCHER.title, command, before=before, once=several)}


def _model(launch: Launch) -> dict[str, Any]:
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


FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write, vendors=("NVIDIA", "AMD"), joins=True)
