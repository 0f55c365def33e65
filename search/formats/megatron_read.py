"""Arguments of Megatron-LM, however they were spelled, as a strategy and the facts of a run."""

from dataclasses import dataclass
from typing import Any

from forerun.search.formats.devices import RunReplicas, World, batch_of, fewest_replicas, replicas, shard_stated
from forerun.search.formats.layers import in_runs, split_of
from forerun.search.formats.layout import parse_layout
from forerun.search.formats.settings import LaunchSettings
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import (
    ALL_LAYERS,
    ALL_REPLICAS,
    MODULES,
    Placement,
    Recompute,
    Schedule,
    Split,
    Strategy,
    in_groups,
)

MODEL_FACTS = {
    "num_layers": "layers",
    "hidden_size": "hidden",
    "ffn_hidden_size": "ffn_hidden",
    "num_attention_heads": "heads",
    "num_query_groups": "kv_heads",
    "num_key_value_heads": "kv_heads",
    "kv_channels": "head_dim",
    "max_position_embeddings": "max_positions",
    "vocab_size": "vocab",
    "padded_vocab_size": "padded_vocab",
    "swiglu": "gated",
    "normalization": "norm",
    "position_embedding_type": "positions",
    "untie_embeddings_and_output_weights": "untied_embeddings",
    "group_query_attention": "grouped_query_attention",
    "add_qkv_bias": "query_key_value_bias",
    "disable_bias_linear": "no_bias",
    "qk_layernorm": "query_key_norm",
    "multi_latent_attention": "latent_attention",
    "q_lora_rank": "query_rank",
    "kv_lora_rank": "key_value_rank",
    "qk_head_dim": "query_key_head_dim",
    "qk_pos_emb_head_dim": "rope_head_dim",
    "v_head_dim": "value_head_dim",
    "num_experts": "experts",
    "moe_router_topk": "top_k",
    "moe_ffn_hidden_size": "expert_hidden",
    "moe_layer_freq": "moe_layers",
    "moe_shared_expert_intermediate_size": "shared_hidden",
    "mtp_num_layers": "mtp_layers",
    "window_size": "window",
}
"""Argument: the fact of a model that it states."""

SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""``--data-parallel-sharding-strategy`` of Megatron-FSDP as ZeRO stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentsRead:
    """What arguments say: the strategy, the facts, what was assumed and what a strategy cannot say."""

    strategy: Strategy
    workload: dict[str, Any]
    model: dict[str, Any]
    defaults: tuple[str, ...]
    notes: tuple[str, ...]


def read_arguments(settings: LaunchSettings, world: World, source: str) -> ArgumentsRead:
    """Read Megatron-LM's arguments by their argument names.

    Raises:
        RequestError: a value is of the wrong type, or arguments contradict each other.
    """
    defaults: list[str] = []
    notes: list[str] = []
    model = settings.facts(MODEL_FACTS)
    tp = settings.whole("tensor_model_parallel_size", "model_parallel_size", "encoder_tensor_model_parallel_size") or 1
    pp = settings.whole("pipeline_model_parallel_size") or 1
    cp = settings.whole("context_parallel_size") or 1
    ep, etp = _experts(settings, tp, "experts" in model, notes)
    least = fewest_replicas(ep, etp, tp * cp) if ep > 1 else 1
    found = replicas(world, tp * pp * cp, what=f"tp*pp*cp = {tp}*{pp}*{cp}", source=source, least=least)
    defaults += found.defaults
    notes += found.notes
    sp = settings.flag("sequence_parallel") or False
    if sp and tp == 1:
        notes.append("sequence parallel has no effect with tp=1; Megatron-LM switches it off")
    split, vpp, per_stage = _pipeline(settings, pp, model.get("layers"), source, notes)
    mbs, batch = _batch(settings, found, defaults)
    precision = _precision(settings, notes)
    workload: dict[str, Any] = {"global_batch": batch, "seq_len": settings.whole("seq_length", "encoder_seq_length")}
    workload |= {"precision": precision, "gpus": found.dp * tp * pp * cp if found.known else None}
    mapped = settings.flag("use_tp_pp_dp_mapping") or False
    some = _some_layers(settings, pp * vpp, model.get("layers"))
    zero = _zero(settings, found, cp, pp, notes)
    strategy = Strategy(
        dp=found.dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=ep,
        etp=etp,
        mbs=mbs,
        vpp=vpp,
        schedule=Schedule.INTERLEAVED if vpp > 1 else Schedule.ONE_F_ONE_B,
        split=split,
        zero=zero,
        shard=_shard(settings, zero, found, cp, source, notes),
        sp=sp and tp > 1,
        recompute=Recompute.FULL if some else _recompute(settings, notes),
        recompute_layers=some or ALL_LAYERS,
        placement=Placement(int(mapped and pp > 1 and (found.dp > 1 or not found.known))),
        layers_per_stage=per_stage,
    )
    facts = {key: value for key, value in workload.items() if value is not None}
    return ArgumentsRead(strategy=strategy, workload=facts, model=model, defaults=tuple(defaults), notes=tuple(notes))


def _experts(settings: LaunchSettings, tp: int, mixture: bool, notes: list[str]) -> tuple[int, int]:
    """Return ep and etp; where the file names no etp it is tp, for a model with experts."""
    ep = settings.whole("expert_model_parallel_size", "moe_expert_parallel_size") or 1
    etp = settings.whole("expert_tensor_parallel_size")
    if not mixture and ep == 1:
        if etp is not None and etp not in (1, tp):
            notes.append(f"expert_tensor_parallel_size={etp} has no effect: the file names no experts")
        return 1, 1
    return ep, tp if etp is None else etp


def _zero(settings: LaunchSettings, found: RunReplicas, cp: int, pp: int, notes: list[str]) -> int:
    sharding = settings.one_of("data_parallel_sharding_strategy", SHARDING)
    distributed = settings.flag("use_distributed_optimizer") or False
    fsdp = settings.flag("use_megatron_fsdp", "use_custom_fsdp") or False
    torch_fsdp = settings.flag("use_torch_fsdp2") or False
    zero = 3 if torch_fsdp else SHARDING[sharding or "no_shard"] if fsdp else int(distributed)
    stage = settings.whole("zero_stage", least=0)  # Megatron-DeepSpeed's
    if stage is not None:
        zero = min(stage, 3)
        # DeepSpeed's optimizer of bfloat16, which its pipeline takes without ZeRO, shares its states out over replicas.
        if not zero and settings.flag("deepspeed") and settings.flag("bf16") and pp > 1:
            notes.append(
                "zero_stage=0 with bf16 and a pipeline: DeepSpeed's BF16 optimizer shards its states; read as zero=1"
            )
            zero = 1
    if zero and found.known and found.dp * cp == 1:
        notes.append(f"sharding over replicas (zero={zero}) has no effect with one replica")
        return 0
    return zero


def _shard(settings: LaunchSettings, zero: int, found: RunReplicas, cp: int, source: str, notes: list[str]) -> int:
    """Return how many replicas share states: those of one instance of the distributed optimizer."""
    instances = settings.whole("num_distributed_optimizer_instances") or 1
    if not zero or instances == 1:
        return ALL_REPLICAS
    if not found.known:
        return shard_stated(None, instances, notes)
    if found.dp * cp % instances:
        raise RequestError(
            f"{source}: dp*cp = {found.dp}*{cp} replicas are not divisible by num_distributed_optimizer_instances="
            f"{instances}"
        )
    return found.dp * cp // instances


def _some_layers(settings: LaunchSettings, stages: int, layers: object) -> int | None:
    """Return the choice of ``recompute_layers``; None where no layer is recomputed whole, or all are."""
    granularity = settings.text("recompute_granularity", "activations_checkpoint_granularity")
    method = settings.text("recompute_method", "activations_checkpoint_method")
    some = settings.whole("recompute_num_layers", "activations_checkpoint_num_layers")
    if granularity != "full" or method not in ("block", "uniform", None) or not some:
        return None
    if method != "block":
        return in_groups(min(some, -(-layers // stages)) if isinstance(layers, int) else some)
    return None if isinstance(layers, int) and some >= -(-layers // stages) else some


def _recompute(settings: LaunchSettings, notes: list[str]) -> Recompute:
    granularity = settings.one_of(
        ("recompute_granularity", "activations_checkpoint_granularity"), ("full", "selective")
    )
    method = settings.text("recompute_method", "activations_checkpoint_method")
    layers = settings.whole("recompute_num_layers", "activations_checkpoint_num_layers")
    modules = settings.raw("recompute_modules")
    old = settings.flag("checkpoint_activations") or settings.flag("deepspeed_activation_checkpointing")
    if settings.flag("recompute_activations") and granularity is None:
        granularity = "selective"
    elif old and granularity is None:
        settings.whole("checkpoint_num_layers", least=0)
        return Recompute.FULL  # before recompute had a granularity: every layer from its input
    if granularity == "full":
        if method == "block":
            notes.append(
                f"recompute of {layers or 1} layers by {method or 'uniform'} is read as recompute=full: all layers"
            )
        return Recompute.FULL
    if granularity == "selective":
        names = modules if isinstance(modules, list | tuple) else str(modules or "core_attn").split()
        known = [MODULES[str(name)] for name in names if str(name) in MODULES]
        if len(known) < len(names):
            lost = ", ".join(str(name) for name in names if str(name) not in MODULES)
            notes.append(f"recompute of {lost} is not part of a strategy")
        return Recompute(sum(dict.fromkeys(known))) if known else Recompute.SELECTIVE
    return Recompute.NONE


def _pipeline(
    settings: LaunchSettings, pp: int, layers: object, source: str, notes: list[str]
) -> tuple[Split, int, tuple[int, ...] | None]:
    """Return split, virtual stages and layers per stage."""
    layout = settings.raw("pipeline_model_parallel_layout")
    each = settings.whole("num_layers_per_virtual_pipeline_stage")
    vpp = settings.whole("num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size")
    first = settings.whole("decoder_first_pipeline_num_layers")
    last = settings.whole("decoder_last_pipeline_num_layers")
    embedding = settings.flag("account_for_embedding_in_pipeline_split") or False
    loss = settings.flag("account_for_loss_in_pipeline_split") or False
    count = layers if isinstance(layers, int) else None
    if pp == 1:
        return Split.EVEN, 1, None
    if layout is not None:
        return _layout(layout, pp, source, notes)
    if each is not None:
        if count is None or count % (pp * each):
            raise RequestError(
                f"{source}: {each} layers per virtual stage and pp={pp} must divide num_layers, but it is {count}"
            )
        vpp = count // (pp * each)
    vpp = vpp or 1
    if first is not None or last is not None:
        return _edges(first, last, count, pp, vpp, source, notes)
    split = Split.LIGHT_ENDS if embedding and loss else Split.LIGHT_LAST if loss else Split.EVEN
    if embedding and not loss:
        if count is None or (count + 1) % (pp * vpp):
            raise RequestError(f"{source}: num_layers+1 must be divisible by pp*vpp = {pp * vpp}, but it is {count}")
        stage = (count + 1) // (pp * vpp)
        return _of_counts((stage - 1, *[stage] * (pp * vpp - 1)), pp, vpp, "the split", notes)
    if split == Split.LIGHT_ENDS and pp * vpp == 2:
        split = Split.EVEN  # both stages lose one
    return split, vpp, None


def _layout(layout: Any, pp: int, source: str, notes: list[str]) -> tuple[Split, int, tuple[int, ...] | None]:
    if isinstance(layout, list):
        stages = [stage if isinstance(stage, list) else [stage] for stage in layout]
        counts = tuple(sum(str(kind) in ("decoder", "t") for kind in stage) for stage in stages)
        predicts = any(str(kind) in ("mtp", "m") for kind in stages[-1])
    else:
        counts = parse_layout(str(layout), source)
        predicts = "m" in str(layout).rpartition("|")[2]
    if len(counts) % pp:
        raise RequestError(f"{source}: the layout has {len(counts)} stages, which pp={pp} does not divide")
    return _of_counts(counts, pp, len(counts) // pp, f"the layout {str(layout)[:60]}", notes, predicts=predicts)


def _edges(
    first: int | None, last: int | None, count: int | None, pp: int, vpp: int, source: str, notes: list[str]
) -> tuple[Split, int, tuple[int, ...] | None]:
    """Return the split of a first and a last stage with numbers of their own and equal ones between."""
    if count is None:
        stated = f"{first or 'the rest'} in the first and {last or 'the rest'} in the last stage"
        notes.append(f"layers: {stated}; without the number of all layers read as split=balanced")
        return Split.BALANCED, vpp, None
    middle = pp - (first is not None) - (last is not None)
    left = count - (first or 0) - (last or 0)
    if left < 0 or (left % middle if middle > 0 else left) or middle < 0:
        raise RequestError(
            f"{source}: {left} layers cannot be divided among the {middle} stages between first and last"
        )
    each = [left // middle] * middle if middle else []
    stages = [*([first] if first is not None else []), *each, *([last] if last is not None else [])]
    if any(layers % vpp for layers in stages):
        raise RequestError(f"{source}: layers per stage {stages} are not divisible by {vpp} virtual stages")
    return _of_counts(tuple(layers // vpp for layers in stages) * vpp, pp, vpp, "the split", notes)


def _of_counts(
    counts: tuple[int, ...], pp: int, vpp: int, what: str, notes: list[str], *, predicts: bool = False
) -> tuple[Split, int, tuple[int, ...] | None]:
    named = split_of(counts, pp=pp, vpp=vpp, predicts=predicts)
    if named is None:
        notes.append(
            f"{what} puts {in_runs(counts)} layers on {pp}*{vpp} virtual stages, for which a strategy has no name; "
            "read as split=balanced"
        )
        return Split.BALANCED, vpp, None
    return named[0], vpp, named[1]


def _batch(settings: LaunchSettings, found: RunReplicas, defaults: list[str]) -> tuple[int, int | None]:
    mbs = settings.whole("micro_batch_size")
    batch = settings.whole("global_batch_size")
    if mbs is None:
        mbs = 1
        defaults.append("mbs=1: the file has no micro_batch_size")
    if batch is None:
        batch, assumed = batch_of(found, mbs, "as Megatron-LM assumes")
        defaults.append(assumed)
    return mbs, batch


def _precision(settings: LaunchSettings, notes: list[str]) -> str:
    eight = settings.text("fp8_format", "fp8")
    recipe = settings.text("fp8_recipe")
    four = settings.text("fp4_format", "fp4")
    settings.raw("fp4_recipe")
    half, brain = settings.flag("fp16") or False, settings.flag("bf16") or False
    if four and four.lower() != "none":
        return "nvfp4"
    if eight and eight.lower() not in ("none", "false"):
        if recipe == "mxfp8":
            return "mxfp8"
        if recipe not in (None, "delayed", "tensorwise"):
            notes.append(f"fp8 recipe {recipe} is read as precision fp8")
        return "fp8"
    return "bf16" if brain else "fp16" if half else "fp32"
