"""Writer of MaxText: a YAML file over ``base.yml`` and the command for every host.

``tables/maxtext.py`` reads the same keys.
"""

from typing import Any

from forerun.search.formats.contract import Files, Launch, Limit
from forerun.search.formats.facts import format_of
from forerun.search.formats.launchers import SLURM, comment, harmless, scripts
from forerun.search.formats.limits import MEGATRON_COMMON, SHARED_BY_WHOLE_REPLICAS, fixed, precisions, when
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.software import flags_of
from forerun.search.formats.stages import WHOLE_STAGES
from forerun.search.formats.tables.limits_of import NO_DIVIDING, ONE_STAGE_SPLIT, no_zero
from forerun.search.formats.tables.maxtext import LAUNCHER
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.models.model import FeedForward, Model
from forerun.spaces.strategies import ALL_LAYERS, ALL_REPLICAS, Recompute, Schedule

NAME, MAIN = "maxtext", "maxtext.yml"
POLICIES = {
    Recompute.FULL: "full",
    Recompute.SELECTIVE: "minimal",
    Recompute.SELECTIVE | Recompute.MLP: "save_dot_except_mlp",
    Recompute.MLP: "save_dot_with_context_except_mlp",
    Recompute.NONE: "none",
}
OFFLOADED: dict[Recompute, dict[str, str]] = {
    Recompute.FULL: {"remat_policy": "custom", "decoder_layer_input": "offload"},
    Recompute.SELECTIVE: {"remat_policy": "minimal_offloaded"},
}
"""Policies with activations in host memory."""
DOCUMENTS = {"dataset_type": "hf", "hf_path": "allenai/c4", "hf_data_dir": "en", "packing": True}
"""Packed sequences with attention inside documents; synthetic data have no documents."""
HARDWARE = {"Google": "tpu", "NVIDIA": "gpu", "AMD": "gpu"}
"""MaxText's names for the devices of a vendor."""
MODELS = {
    "llama3-405b": "llama3.1-405b",
    "deepseek-v2": "deepseek2-236b",
    "deepseek-v2-lite": "deepseek2-16b",
    "deepseek-v3": "deepseek3-671b",
    "gemma-2-9b": "gemma2-9b",
    "gemma-3-27b": "gemma3-27b",
    "kimi-k2": "kimi-k2-1t",
    "llama4-scout": "llama4-17b-16e",
    "llama4-maverick": "llama4-17b-128e",
} | {
    name: name
    for name in (
        "gpt-oss-20b gpt-oss-120b gpt3-175b llama2-7b llama2-13b llama2-70b llama3-8b llama3-70b mistral-7b "
        "mixtral-8x7b mixtral-8x22b qwen3-0.6b qwen3-4b qwen3-8b qwen3-14b qwen3-32b qwen3-30b-a3b qwen3-235b-a22b "
        "qwen3-next-80b-a3b"
    ).split()
}
"""Models of the catalogue: MaxText's names (``configs/models``)."""


def _offloads(launch: Launch) -> bool:
    return launch.switches.get("activation-offload", "off") != "off"


def _slices(launch: Launch) -> int:
    """Return the number of slices of a launch."""
    return -(-launch.strategy.devices // launch.pod_devices) if launch.pod_devices else 1


def _over_slices(launch: Launch) -> str | None:
    """Return the axis divided over slices; None if no degree is a multiple of their number."""
    s, slices = launch.strategy, _slices(launch)
    copies, shards = _replicas(launch)
    found = {"data": copies, "fsdp": shards, "pipeline": s.pp}
    return next((axis for axis, size in found.items() if size % slices == 0), None)


def _replicas(launch: Launch) -> tuple[int, int]:
    """Return the number of copies of the parameters, and the ranks per copy."""
    s = launch.strategy
    copies = s.copies if s.zero else max(1, s.dp // s.ep)
    return copies, s.dp // (copies * s.ep)


LIMITS = (
    *MEGATRON_COMMON,
    WHOLE_STAGES,
    decoders_only("MaxText"),
    when(
        lambda s: s.pp > 1 and s.schedule not in (Schedule.GPIPE, Schedule.INTERLEAVED),
        "its pipeline runs all forward passes first (gpipe), or circularly",
        schedule=Schedule.GPIPE,
        vpp=1,
    ),
    NO_DIVIDING,
    ONE_STAGE_SPLIT,
    no_zero(1, "parameters are sharded along fsdp (zero=3) or not at all", 3),
    no_zero(2, "parameters are sharded along fsdp (zero=3) or not at all", 3),
    when(
        lambda s: s.zero == 0 and s.dp * s.cp > 1 and s.cp * s.ep > 1,
        "zero=0 with cp or ep: parameters are sharded along context and expert, too (zero=3)",
        zero=3,
    ),
    *by_keys(LAUNCHER, besides=("sp", "schedule", "recompute", "precision")),
    when(lambda s: s.ep > 1 and bool(s.dp % s.ep), "ep that does not divide dp: experts' ranks are replicas", ep=1),
    SHARED_BY_WHOLE_REPLICAS,
    when(
        lambda s: s.zero > 0 and bool(s.dp % (max(1, s.copies) * s.ep)),
        "shard: copies and experts' ranks must divide the replicas",
        shard=ALL_REPLICAS,
    ),
    when(
        lambda s: s.recompute not in POLICIES or s.recompute_layers != ALL_LAYERS,
        "recompute: its policies keep products of all layers, some of them, or none",
        recompute=Recompute.FULL,
        recompute_layers=ALL_LAYERS,
    ),
    fixed(
        lambda launch: _offloads(launch) and launch.strategy.recompute not in OFFLOADED,
        "activation-offload without recompute: its policies move products, or inputs of layers, and repeat the rest",
        recompute=Recompute.SELECTIVE,
    ),
    Limit(
        broken=lambda launch: _over_slices(launch) is None,
        reason=lambda launch: f"{_slices(launch)} slices divide neither its replicas nor its stages",
        fix=None,
    ),
    precisions(("bf16", "fp32", "fp8"), "it trains in bfloat16, float32 or float8"),
)


def write(launch: Launch) -> Files:
    """Return the YAML over ``base.yml`` and the script for every host; TPUs have no Slurm."""
    s, workload = launch.strategy, launch.workload
    each = s.mbs * (launch.microbatches if s.pp > 1 else 1) / (s.tp * s.cp * s.pp)
    switches = flags_of(launch, NAME) | ({} if not _offloads(launch) else OFFLOADED[s.recompute])
    data: dict[str, Any] = {
        "base_config": "base.yml",
        "run_name": harmless(launch.name),
        **_model(launch.model),
        **({"hardware": HARDWARE[launch.vendor]} if launch.vendor in HARDWARE else {}),
        **_mesh(launch),
        "per_device_batch_size": int(each) if each == int(each) else each,
        "gradient_accumulation_steps": 1 if s.pp > 1 else launch.microbatches,
        "max_target_length": workload.seq_len,
        **({"remat_policy": POLICIES[s.recompute]} | switches),
        "dtype": "float32" if workload.precision == "fp32" else "bfloat16",
        "quantization": "fp8" if workload.precision == "fp8" else "",
        **(DOCUMENTS if launch.packed else {"dataset_type": "synthetic"}),
        "enable_checkpointing": False,
        "steps": launch.job.steps,
    }
    if s.pp > 1:
        data |= {"num_pipeline_microbatches": launch.microbatches, "num_pipeline_repeats": s.vpp}
    title = f"{LAUNCHER.title} {LAUNCHER.version}"
    known = launch.model.name in MODELS or data["model_name"] == "default"
    remarks = [] if known else [f"MaxText has its own names of models; {comment(launch.model.name)} is the catalogue's"]
    text = dump_yaml(data, f"{launch.name}: {title}, {s}", *remarks)
    command = [f"python3 -m maxtext.trainers.pre_train.train {MAIN}"]
    files = {MAIN: text, **scripts(launch, title, command, before=_before(launch))}
    return {name: text for name, text in files.items() if name != SLURM or launch.vendor != "Google"}


def _before(launch: Launch) -> list[str]:
    """Return the lines before the command."""
    if launch.vendor == "Google":
        return ["# On every host at once: gcloud compute tpus tpu-vm ssh NAME --worker=all --command=..., or xpk."]
    if HARDWARE.get(launch.vendor) == "gpu":
        return ['export NNODES NODE_RANK JAX_COORDINATOR_IP="$MASTER_ADDR" JAX_COORDINATOR_PORT="$MASTER_PORT"']
    return []


def _mesh(launch: Launch) -> dict[str, int]:
    """Return devices along every axis, within a slice and over slices."""
    s, slices = launch.strategy, _slices(launch)
    copies, shards = _replicas(launch)
    sizes = {
        "data": copies,
        "fsdp": shards,
        "tensor": 1 if s.sp else s.tp,
        "tensor_sequence": s.tp if s.sp else 1,
        "context": s.cp,
        "pipeline": s.pp,
        "expert": s.ep,
    }
    axis = _over_slices(launch)
    found = {"dcn_data_parallelism": 1}
    if slices > 1:
        found[f"dcn_{axis}_parallelism"] = slices
    inside = {name: size // (slices if name == axis else 1) for name, size in sizes.items()}
    return found | {
        f"ici_{name}_parallelism": size for name, size in inside.items() if name != "tensor_sequence" or s.sp
    }


def _model(model: Model) -> dict[str, Any]:
    """Return the name of a model, or the sizes of an unnamed dense model."""
    layer, plain = model.layers[-1], {(x.mixer, x.mlp) for x in model.layers}
    mlp = layer.mlp
    if model.name in MODELS:
        return {"model_name": MODELS[model.name]}
    if (
        len(plain) > 1
        or not isinstance(mlp, FeedForward)
        or not mlp.gated
        or layer.norm_bias
        or model.learned_positions
    ):
        return {"model_name": harmless(model.name)}
    attention = layer.attention
    return {
        "model_name": "default",
        "decoder_block": "llama2",
        "base_emb_dim": model.hidden,
        "base_num_query_heads": attention.heads,
        "base_num_kv_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "base_mlp_dim": mlp.hidden,
        "base_num_decoder_layers": model.layer_count,
        "vocab_size": model.vocab,
        "logits_via_embedding": model.tied_embeddings,
    }


FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write, packs="^packing: true$")
