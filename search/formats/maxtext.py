"""Writer of MaxText: a YAML file over ``base.yml`` and the command for every host.

``tables/maxtext.py`` reads the same keys.
"""

import dataclasses
from typing import Any

from forerun.search.formats.contract import Files, Launch, Limit
from forerun.search.formats.facts import format_of
from forerun.search.formats.launchers import SLURM, harmless, scripts
from forerun.search.formats.limits import (
    MEGATRON_COMMON,
    SHARED_BY_WHOLE_REPLICAS,
    change,
    fixed,
    folded,
    precisions,
    when,
)
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.software import flags_of
from forerun.search.formats.stages import WHOLE_STAGES
from forerun.search.formats.tables.limits_of import NO_DIVIDING, ONE_STAGE_SPLIT, no_zero
from forerun.search.formats.tables.maxtext import LAUNCHER, NAMES
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.models.mixers.attention import Attention
from forerun.spaces.models.model import FeedForward, Model
from forerun.spaces.strategies import ALL_LAYERS, ALL_REPLICAS, Recompute, Schedule

NAME, MAIN = "maxtext", "maxtext.yml"


def _offloads(launch: Launch) -> bool:
    return launch.switches.get("activation-offload", "off") != "off"


def _slices(launch: Launch) -> int:
    """Return the number of slices of a launch."""
    return -(-launch.strategy.devices // launch.pod_devices) if launch.pod_devices else 1


def _over_slices(launch: Launch) -> str | None:
    """Return the axis divided over slices; None if no degree is a multiple of their number."""
    s, slices = launch.strategy, _slices(launch)
    copies, shards = _replicas(launch)
    degrees = {"data": copies, "fsdp": shards, "pipeline": s.pp}
    return next((axis for axis, size in degrees.items() if size % slices == 0), None)


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
    Limit(
        broken=lambda launch: launch.strategy.pp > 1 and len({type(layer.mlp) for layer in launch.model.layers}) > 1,
        reason=lambda launch: "its pipeline leaves out the dense layers before those with experts",
        fix=lambda launch: folded(launch, "pp"),
    ),
    Limit(
        broken=lambda launch: launch.strategy.pp > 1 and launch.microbatches % launch.strategy.pp != 0,
        reason=lambda launch: f"{launch.microbatches} microbatches are not a multiple of {launch.strategy.pp} stages",
        fix=lambda launch: folded(launch, "pp"),
    ),
    Limit(
        broken=lambda launch: (
            launch.workload.precision == "fp8" and launch.strategy.pp == 1 and launch.microbatches > 1
        ),
        reason=lambda launch: "it accumulates no gradients under fp8",
        fix=lambda launch: change(launch, mbs=launch.strategy.mbs * launch.microbatches),
    ),
    Limit(
        broken=lambda launch: _model(launch.model) is None,
        reason=lambda launch: f"it has no {launch.model.name}; a model outside its list must be a plain dense decoder",
        fix=None,
    ),
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
        lambda s: s.recompute_name not in NAMES["policies"] or s.recompute_layers != ALL_LAYERS,
        "recompute: its policies keep products of all layers, some of them, or none",
        recompute=Recompute.FULL,
        recompute_layers=ALL_LAYERS,
    ),
    fixed(
        lambda launch: _offloads(launch) and launch.strategy.recompute_name not in NAMES["offloaded"],
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
    policy = NAMES["offloaded" if _offloads(launch) else "policies"][s.recompute_name]
    data: dict[str, Any] = {
        "base_config": "base.yml",
        "run_name": harmless(launch.name),
        **(_model(launch.model) or {}),
        **({"hardware": NAMES["hardware"][launch.vendor]} if launch.vendor in NAMES["hardware"] else {}),
        **_mesh(launch),
        "per_device_batch_size": int(each) if each == int(each) else each,
        "gradient_accumulation_steps": 1 if s.pp > 1 else launch.microbatches,
        "max_target_length": workload.seq_len,
        **flags_of(launch, NAME),
        **policy,
        "dtype": "float32" if workload.precision == "fp32" else "bfloat16",
        "quantization": "fp8" if workload.precision == "fp8" else "",
        **(NAMES["documents"] if launch.packed else {"dataset_type": "synthetic"}),
        "enable_checkpointing": False,
        "steps": launch.job.steps,
    }
    if s.pp > 1:
        data |= {"num_pipeline_microbatches": launch.microbatches, "num_pipeline_repeats": s.vpp}
        data |= {"num_layers_per_pipeline_stage": launch.model.layer_count // (s.pp * s.vpp)}
    title = f"{LAUNCHER.title} {LAUNCHER.version}"
    text = dump_yaml(data, f"{launch.name}: {title}, {s}")
    command = [f"python3 -m maxtext.trainers.pre_train.train {MAIN}"]
    files = {MAIN: text, **scripts(launch, title, command, before=_before(launch))}
    return {name: text for name, text in files.items() if name != SLURM or launch.vendor != "Google"}


def _before(launch: Launch) -> list[str]:
    """Return the lines before the command."""
    if launch.vendor == "Google":
        return ["# On every host at once: gcloud compute tpus tpu-vm ssh NAME --worker=all --command=..., or xpk."]
    if NAMES["hardware"].get(launch.vendor) == "gpu":
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
    mesh = {"dcn_data_parallelism": 1}
    if slices > 1:
        mesh[f"dcn_{axis}_parallelism"] = slices
    inside = {name: size // (slices if name == axis else 1) for name, size in sizes.items()}
    return mesh | {
        f"ici_{name}_parallelism": size for name, size in inside.items() if name != "tensor_sequence" or s.sp
    }


def _model(model: Model) -> dict[str, Any] | None:
    """Return the name of a model, or the sizes of another dense decoder; None for a model that MaxText lacks."""
    if model.name in NAMES["models"]:
        return {"model_name": NAMES["models"][model.name]}
    layer = model.layers[-1]
    mlp, attention = layer.mlp, layer.mixer
    if (
        not isinstance(mlp, FeedForward)
        or not isinstance(attention, Attention)
        or len({(one.mixer, one.mlp) for one in model.layers}) > 1
        or not mlp.gated
        or layer.norm_bias
        or model.learned_positions
    ):
        return None
    plain = Attention(
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        value_head_dim=attention.head_dim,
    )
    if dataclasses.replace(attention, query_key_value_bias=False, query_key_norm=False) != plain:
        return None
    return {
        "model_name": "default",
        "decoder_block": "qwen3" if attention.query_key_norm else "llama2",
        "use_qk_norm": attention.query_key_norm,
        "attention_bias": attention.query_key_value_bias,
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
