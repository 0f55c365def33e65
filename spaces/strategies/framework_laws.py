"""Limits of a framework: masks of rows beyond them, and messages, for the laws of ``rules``.

Arithmetic laws are in ``rules``; the laws of this module depend only on the framework's ``legality``.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts
from forerun.spaces.schedules.catalogue import schedule_of, with_trait
from forerun.spaces.strategies.axes import ALL_LAYERS, MODULES, SPELLING, Recompute, first_layers, group_size
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.table import CUSTOM_SPLIT, Columns, Mask


def degree_unsupported(c: Columns, x: Context) -> Mask:
    """Mark degrees of an axis that the framework does not have; without etp experts are cut like other modules."""
    broken = np.zeros(np.broadcast_shapes(*(np.shape(c[axis]) for axis in ("pp", "tp", "cp", "ep", "etp"))), dtype=bool)
    for axis in _degrees_absent(x):
        broken |= (c[axis] > 1) & (axis != "etp" or c["etp"] != c["tp"])
    return broken | _beside_a_pipeline(c, x)


def _beside_a_pipeline(c: Columns, x: Context) -> Mask:
    """Mark tensor or expert degrees in a pipeline, if the framework has them only without one."""
    return np.asarray((c["pp"] > 1) & ((c["tp"] > 1) | (c["ep"] > 1)) & x.framework.legality.pipeline_alone)


def no_such_degree(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``degree_unsupported``, which names only the requested axes."""
    asked = [axis for axis in _degrees_absent(x) if v[axis] > 1 and not (axis == "etp" and v["etp"] == v["tp"])]
    if not asked:
        return (
            f"{x.framework.name} has no tp and no ep within a pipeline, but got pp={v['pp']} tp={v['tp']} "
            f"ep={v['ep']}; use pp=1, or tp=1 ep=1"
        )
    got, fix = " ".join(f"{axis}={v[axis]}" for axis in asked), " ".join(f"{axis}=1" for axis in asked)
    return f"{x.framework.name} offers no {' and no '.join(asked)}, but got {got}; use {fix}, or another framework"


def _degrees_absent(x: Context) -> list[str]:
    legality = x.framework.legality
    offered = {
        "pp": legality.pipeline_parallel,
        "tp": legality.tensor_parallel,
        "cp": legality.context_parallel,
        "ep": legality.expert_parallel,
        "etp": legality.expert_tensor,
    }
    return [axis for axis, offers in offered.items() if not offers]


def unsupported(axis: str, spellings: str) -> Callable[[Columns, Context], Mask]:
    """Return the predicate "the framework does not have this choice" for a named axis."""

    def illegal(c: Columns, x: Context) -> Mask:
        allowed = [n for n, name in SPELLING[axis].items() if name in getattr(x.framework.legality, spellings)]
        return ~np.isin(c[axis], [*allowed, *range(CUSTOM_SPLIT, CUSTOM_SPLIT + 64)] if axis == "split" else allowed)

    return illegal


def no_such(axis: str, spellings: str) -> Callable[[Mapping[str, int], Context], str]:
    """Return the message of ``unsupported``."""
    return lambda v, x: (
        f"{x.framework.name} has no {axis} {SPELLING[axis].get(v[axis], v[axis])}; "
        f"it has {', '.join(getattr(x.framework.legality, spellings))}"
    )


def schedule_unsupported(c: Columns, x: Context) -> Mask:
    """Mark schedules that the framework does not have at all, for such a model, or on two ranks.

    Two interleaved ranks send to each other at the same time, which blocks unless transfers overlap (Megatron-LM,
    validate_args).
    """
    interleaved = with_trait(c["schedule"], lambda kind: kind.in_rounds)
    hindered = np.logical_or.reduce([interleaved & np.isin(c["pp"], ranks) for ranks, _ in _interleaved_so(x)])
    return np.asarray((c["pp"] > 1) & (unsupported("schedule", "schedules")(c, x) | hindered))


def _interleaved_so(x: Context) -> list[tuple[Sequence[int], str]]:
    """Return the numbers of ranks that cannot be interleaved, with reasons."""
    exclusions: list[tuple[Sequence[int], str]] = []
    if ("overlap-p2p", "off") in x.framework.switches:
        reason = "overlap-p2p=off with interleaved stages on two ranks, which send to each other at once; use vpp=1"
        exclusions.append(((2,), reason))
    if x.model.hybrid and not x.framework.legality.interleaves_hybrids:
        reason = f"{x.framework.name} builds hybrid models as {x.model.name} without virtual stages"
        exclusions.append((range(2, x.cluster.max_devices + 1), f"{reason}; use vpp=1"))
    return exclusions


def no_such_schedule(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``schedule_unsupported``."""
    reason = [reason for ranks, reason in _interleaved_so(x) if v["pp"] in ranks]
    if reason and schedule_of(v["schedule"]).in_rounds:
        return reason[0]
    return no_such("schedule", "schedules")(v, x)


def split_unsupported(c: Columns, x: Context) -> Mask:
    """Mark splits that the framework does not have; EVEN is always legal on a single stage."""
    return np.asarray(unsupported("split", "splits")(c, x) & ~((c["pp"] == 1) & (c["split"] == 0)))


def separate_norms(framework: FrameworkProfile, layer: Layer) -> int:
    """Return the number of a layer's norms that are separate modules in the framework and can be recomputed."""
    if not framework.fused_norms:
        return layer.norms
    latent = layer.attends and getattr(layer.mixer, "latent", None) is not None
    return latent + (layer.feeds_forward and isinstance(layer.mlp, MixtureOfExperts))


def modules_of(context: Context) -> int:
    """Return the modules of a model that its framework can recompute separately."""
    model = context.model
    latent = any(getattr(layer.mixer, "latent", None) for layer in model.layers)
    mixtures = [layer.mlp for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts)]
    dense = any(isinstance(layer.mlp, FeedForward) for layer in model.layers)
    modules = Recompute.SELECTIVE
    if any(separate_norms(context.framework, layer) for layer in model.layers):
        modules |= Recompute.LAYERNORM
    modules |= Recompute.MLA_UP_PROJ if latent else Recompute.NONE
    modules |= Recompute.MLP if dense else Recompute.NONE
    modules |= Recompute.MOE | Recompute.MOE_ACT if mixtures else Recompute.NONE
    modules |= Recompute.SHARED_EXPERTS if any(mlp.shared_hidden for mlp in mixtures) else Recompute.NONE
    return int(modules)


def recompute_unsupported(c: Columns, x: Context) -> Mask:
    """Mark choices of recompute, or of its modules, that the framework does not have.

    CUDA graphs exclude recompute of entire layers, and activations of experts belong to their grouped product
    (Megatron-core, transformer_config.py).
    """
    legality, without = x.framework.legality, {"full"} if x.framework.graphs == "layers" else set()
    offered = [number for number, name in SPELLING["recompute"].items() if name in {*legality.recompute} - without]
    lacks = ~int(sum(MODULES[name] for name in legality.recompute_modules))
    lacks |= 0 if x.framework.grouped_experts else int(Recompute.MOE_ACT)
    lacks |= int(sum(module for module, _ in _hindered(x)))
    return np.asarray(~np.isin(c["recompute"], offered) & ((c["recompute"] & lacks) != 0))


def _hindered(x: Context) -> list[tuple[Recompute, str]]:
    """Return modules that other settings of the software exclude from recompute, each with its reason and fix."""
    profile, exclusions = x.framework, []
    if "router" in profile.graphed and "experts" not in profile.graphed:
        reason = "mixtures whose router is in a CUDA graph are not recomputed whole; set cuda-graphs=attn, or drop moe"
        exclusions.append((Recompute.MOE, reason))
    if profile.overlap_shared_experts:
        reason = "shared experts that compute beside traffic are not recomputed; drop them, or shared-expert-overlap"
        exclusions.append((Recompute.SHARED_EXPERTS, reason))
    if x.workload.precision == "fp8" and profile.eight_bit_recipe == "delayed":
        # Their outputs are recomputed outside the code that records the largest values.
        reason = "delayed scaling recomputes neither layernorm nor moe_act; drop them, or set fp8-recipe=current"
        exclusions.append((Recompute.LAYERNORM | Recompute.MOE_ACT, reason))
    return exclusions


def no_such_recompute(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``recompute_unsupported``."""
    legality = x.framework.legality
    modules = f", and of modules {', '.join(legality.recompute_modules)}" if legality.recompute_modules else ""
    if (reason := next((reason for module, reason in _hindered(x) if v["recompute"] & module), None)) is not None:
        return reason
    if x.framework.graphs == "layers" and v["recompute"] == Recompute.FULL:
        return (
            "whole layers are not recomputed where parts of them are CUDA graphs; recompute modules, or cuda-graphs=off"
        )
    if not x.framework.grouped_experts and v["recompute"] & Recompute.MOE_ACT:
        return "recompute of moe_act is of the experts' grouped product; set grouped-gemm=on, or drop moe_act"
    return (
        f"{x.framework.name} has no recompute {SPELLING['recompute'].get(v['recompute'], v['recompute'])}; "
        f"it has {', '.join(legality.recompute)}{modules}"
    )


def recompute_redundant(c: Columns, x: Context) -> Mask:
    """Mark modules that the model does not have, or that another chosen module or full recompute contains."""
    kind = c["recompute"]
    modules = kind & ~int(Recompute.FULL)
    absent = (modules & ~modules_of(x)) != 0
    inside = ((kind & Recompute.MOE) != 0) & ((kind & (Recompute.MOE_ACT | Recompute.SHARED_EXPERTS)) != 0)
    return np.asarray(absent | inside | (((kind & Recompute.FULL) != 0) & (modules != 0)))


def block_broken(c: Columns, x: Context) -> Mask:
    """Mark numbers of layers without full recompute, not available in the framework, or as large as a stage."""
    asked = c["recompute_layers"] != ALL_LAYERS
    if not asked.any():
        return np.asarray(asked)
    wrong = (c["recompute"] != Recompute.FULL) | ~with_trait(c["schedule"], lambda kind: kind.recomputes_some)
    most = -(-x.model.layer_count // (c["pp"] * c["vpp"]))
    # A group may be an entire stage.
    many = (first_layers(c["recompute_layers"]) >= most) | (group_size(c["recompute_layers"]) > most)
    return np.asarray(asked & (wrong | many | (not x.framework.legality.recompute_layers)))


def no_such_block(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``block_broken``."""
    most = -(-x.model.layer_count // (v["pp"] * v["vpp"])) - 1
    if v["recompute"] != Recompute.FULL:
        return "only recompute=full can name a number of layers; write recompute=full:3, or drop recompute_layers"
    if not x.framework.legality.recompute_layers:
        return f"{x.framework.name} recomputes all layers of a stage or none; drop the number of layers"
    if not schedule_of(v["schedule"]).recomputes_some:
        name = SPELLING["schedule"][v["schedule"]]
        return f"recompute of {v['recompute_layers']} layers does not go with schedule {name}; recompute all or none"
    if (group := group_size(v["recompute_layers"])) > 1:
        return f"(virtual) stages have {most + 1} layers at most and no groups of {group}; write recompute=full"
    return (
        f"(virtual) stages have {most + 1} layers at most and cannot recompute {v['recompute_layers']} of them; "
        f"{f'name 1 to {most}, or ' if most else ''}write recompute=full or none without a number"
    )


def zero_unsupported(c: Columns, x: Context) -> Mask:
    """Mark ZeRO stages that the framework does not have, or not with these degrees."""
    legality = x.framework.legality
    absent = ~np.isin(c["zero"], legality.zero_stages)
    plain = (c["zero"] == 0) & (c["dp"] * c["cp"] > 1) & legality.plain_replicas_alone
    split = (c["pp"] > 1) | (c["tp"] > 1) | (c["cp"] > 1) | (c["ep"] > 1)
    return np.asarray(absent | ((c["pp"] > 1) & (c["zero"] > legality.zero_with_pipeline)) | (plain & split))


def no_such_zero(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``zero_unsupported``, with the ZeRO stages to use instead."""
    legality, degrees = x.framework.legality, f"tp={v['tp']} pp={v['pp']} cp={v['cp']} ep={v['ep']}"
    if v["zero"] == 0 and 0 in legality.zero_stages:
        return f"{x.framework.name} has replicas that share nothing (zero=0) alone, but got {degrees}; use zero=2 or 3"
    stages = [zero for zero in legality.zero_stages if v["pp"] == 1 or zero <= legality.zero_with_pipeline]
    fix = " or ".join(f"zero={zero}" for zero in stages) or "pp=1"
    return f"{x.framework.name} does not offer zero={v['zero']} with pp={v['pp']}; use {fix}"


def sp_unsupported(c: Columns, x: Context) -> Mask:
    """Mark rows with or without sequence parallelism, where the framework excludes it or requires it."""
    policy = x.framework.legality.sequence_parallel
    off, on = (c["sp"] == 0) & (c["tp"] > 1), c["sp"] == 1
    broken = {"optional": np.zeros_like(on), "always": off, "never": on}[policy]
    needed = x.framework.legality.sp_with_experts and x.moe
    return np.asarray(broken | (off & (c["ep"] > 1)) if needed else broken)


def shard_unsupported(c: Columns, x: Context) -> Mask:
    """Mark states sharded over a part of the replicas where the framework shards them over all."""
    asked, legality = c["shard"] > 0, x.framework.legality
    if not asked.any():
        return np.asarray(asked)
    broken = ~np.isin(c["zero"], legality.partial_zero)
    if legality.shards_context:
        broken = broken | (c["shard"] % c["cp"] != 0)
    return np.asarray(asked & broken)


def no_such_shard(v: Mapping[str, int], x: Context) -> str:
    """Return the message of ``shard_unsupported``."""
    stages = [stage for stage in x.framework.legality.partial_zero if stage]
    if v["zero"] == 0:
        return f"zero=0 shards nothing that shard={v['shard']} replicas could share; drop shard="
    if v["zero"] not in stages:
        had = f" but with zero {' or '.join(map(str, stages))}" if stages else ""
        return (
            f"{x.framework.name} shards over all replicas{had}, but got zero={v['zero']} shard={v['shard']}; "
            "use shard=all"
        )
    return (
        f"{x.framework.name} shards over whole context-parallel groups, but shard={v['shard']} is not a multiple of "
        f"cp={v['cp']}; use a multiple of {v['cp']}"
    )
