"""Random requests and random legal candidates of them, as Hypothesis strategies."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from forerun.spaces.clusters import Cluster, Overlap, load_cluster
from forerun.spaces.frameworks import framework_names, load_framework
from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.models.model import Attention, FeedForward, LatentAttention, Layer, MixtureOfExperts, Model
from forerun.spaces.strategies import ALL_REPLICAS, Context, Recompute, StrategySpace, StrategyTable, default_choices
from forerun.spaces.workload import Workload

CLUSTERS = ("dgx-h100", "dgx-a100-80", "dgx1-v100", "gb200-nvl72", "mi300x-platform", "l40s-pcie", "aws-g4dn")
"""A switch, pairwise links, a mesh, domains larger and smaller than a node; eight-bit units or none, no bf16."""
SPREAD = ("pp", "tp", "cp", "ep", "etp", "vpp", "schedule", "split", "zero", "shard", "sp", "recompute")
SPREAD = (*SPREAD, "recompute_layers", "placement")
GPUS = (1, 2, 4, 6, 8, 12, 16, 32, 64)


@st.composite
def attentions(draw: st.DrawFn, heads: int, *, causal: bool = True) -> Attention:
    """All or grouped keys, windows, norms of queries and keys, or latent attention."""
    if draw(st.integers(0, 3)) == 0:
        latent = LatentAttention(query_rank=draw(st.sampled_from([None, 256])), key_value_rank=128, rope_head_dim=32)
        return Attention(heads=heads, kv_heads=heads, head_dim=96, value_head_dim=64, latent=latent, causal=causal)
    return Attention(
        heads=heads,
        kv_heads=draw(st.sampled_from([heads, max(heads // 4, 1), 1])),
        head_dim=64,
        value_head_dim=64,
        causal=causal,
        window=draw(st.sampled_from([None, None, 256])),
        query_key_value_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        query_key_norm=draw(st.booleans()),
    )


@st.composite
def layer_kinds(draw: st.DrawFn, heads: int, *, first: bool) -> Layer:
    """One kind of layer: dense, routed, or with cross attention."""
    attention = draw(attentions(heads))
    gated, kind = draw(st.booleans()), draw(st.sampled_from(["dense", "mixture", "cross"]))
    mlp: FeedForward | MixtureOfExperts = FeedForward(hidden=heads * 192, gated=gated, bias=draw(st.booleans()))
    cross = None
    if kind == "mixture" and not first:
        groups, top_groups = draw(st.sampled_from([(1, 1), (1, 1), (4, 2), (4, 4), (2, 2)]))
        mlp = MixtureOfExperts(
            experts=draw(st.sampled_from([4, 8])),
            top_k=draw(st.sampled_from([1, 2, 4] if top_groups == groups else [1, 2])),
            groups=groups,
            top_groups=top_groups,
            expert_hidden=heads * 48,
            gated=gated,
            shared_hidden=draw(st.sampled_from([0, heads * 48])),
            router_bias=draw(st.booleans()),
            expert_bias=draw(st.booleans()),
        )
    elif kind == "cross":
        cross = draw(attentions(heads, causal=False))
    count = draw(st.integers(1, 6))
    norms, bias = 3 if cross else 2, draw(st.booleans())
    return Layer(name=kind, count=count, mixer=attention, mlp=mlp, cross_attention=cross, norms=norms, norm_bias=bias)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Dense, mixed, encoder-decoder-like and patch models, tied or not, with and without MTP."""
    heads = draw(st.sampled_from([4, 6, 8]))
    kinds = [draw(layer_kinds(heads, first=index == 0)) for index in range(draw(st.integers(1, 3)))]
    patches = draw(st.integers(0, 7)) == 0
    return Model(
        name="random",
        source="test",
        hidden=heads * 64,
        vocab=0 if patches else draw(st.sampled_from([1000, 32000])),
        patch_inputs=588 if patches else 0,
        classes=100 if patches else 0,
        layers=tuple(kinds),
        tied_embeddings=not patches and draw(st.booleans()),
        learned_positions=draw(st.sampled_from([0, 2048])),
        rotary=draw(st.booleans()),
        embedding_norm=draw(st.booleans()),
        head_transform=draw(st.booleans()),
        mtp_layers=0 if patches else draw(st.sampled_from([0, 0, 1, 2])),
    )


@st.composite
def profiles(draw: st.DrawFn) -> FrameworkProfile:
    """A framework of the catalogue, half of the time with every fact that changes cost drawn anew."""
    profile = load_framework(draw(st.sampled_from(framework_names())))
    if draw(st.booleans()):
        return profile
    share, seconds = st.sampled_from([0.0, 0.3, 0.7, 1.0]), st.sampled_from([0.0, 1e-4, 5e-3])
    names = ("layernorm", "rmsnorm", "gelu", "swiglu", "rope", "residual_add", "cross_entropy")
    changes: dict[str, object] = {
        "attention": draw(st.sampled_from(["flash", "flash2", "fused_softmax", "unfused", "unfused_half"])),
        "eager": tuple(draw(st.sets(st.sampled_from(names)))),
        "gradient_bytes": draw(st.sampled_from([2.0, 4.0])),
        "reduce_bytes": draw(st.sampled_from([2.0, 4.0])),
        "main_grad_to_zero": draw(st.sampled_from([-1, 0, 1])),
        "selective": draw(st.sampled_from(["core", "products"])),
        "overlap_slowdown": draw(st.sampled_from([1.0, 1.2])),
        "bucket_bytes": draw(st.sampled_from([1e6, 25e6])),
        "bucket_rank_bytes": draw(st.sampled_from([0.0, 1e6])),
        "step_bytes": draw(st.sampled_from([0.0, 50.0])),
        "bucket_width_bytes": draw(st.sampled_from([0.0, 2.0])),
        "bucket_gradient_bytes": draw(st.sampled_from([0.0, 2.0])),
        "pipeline_idle": draw(st.sampled_from([0.0, 0.2])),
        "unit_parameters": draw(st.sampled_from(["", "flat", "each"])),
        "graphed": tuple(draw(st.sets(st.sampled_from(["attention", "mlp", "router", "experts"])))),
        "graphs": draw(st.sampled_from(["none", "layers"])),
        "eight_bit_recipe": draw(st.sampled_from(["delayed", "current", "block", "row"])),
        "allocator_stall": draw(st.sampled_from([0.0, 0.25])),
        "gradient_sync": draw(st.sampled_from(["microbatch", "round", "pipeline", "step"])),
    }
    facts = ("fused_accumulation", "merged_products", "keeps_gathered", "gathered_logits", "dropout")
    facts += (
        "fused_experts",
        "pads_experts",
        "dispatches_once",
        "broadcasts_parameters",
        "gathers_tensors",
        "gathers_ahead",
        "tree_reduction",
        "reduces_whole",
        "layer_units",
        "states_fragment",
    )
    for name in (*facts, "overlap_pipeline", "combined_passes", "eight_bit_parameters", "eight_bit_copies"):
        changes[name] = draw(st.booleans())
    for name in ("gradients", "parameters", "tensor", "tensor_backward", "context", "expert"):
        changes[f"overlap_{name}"] = draw(share)
    hosts = ("host_layer", "host_rank", "host_expert")
    for name in (*hosts, "tensor_step", "p2p_fixed", "collective_launch"):
        changes[f"{name}_s"] = draw(seconds)
    return replace(profile, **changes)  # type: ignore[arg-type]  # values of the fields' types


@st.composite
def contexts(draw: st.DrawFn, cluster: Cluster | None = None) -> Context:
    """A whole request."""
    cluster = cluster or load_cluster(draw(st.sampled_from(CLUSTERS)))
    if draw(st.integers(0, 3)) == 0:
        cluster = replace(cluster, overlap=Overlap(computation=1.1, communication=1.25))
    known = [name for name in ("bf16", "fp16", "fp8", "mxfp8", "fp32") if name in cluster.device.peak_flops_per_s]
    workload = Workload(
        global_batch=draw(st.sampled_from([8, 24, 64])),
        seq_len=draw(st.sampled_from([384, 512, 2048])),
        precision=draw(st.sampled_from(known)),
        moe_imbalance=draw(st.sampled_from([1.0, 1.3])),
    )
    return Context(model=draw(models()), cluster=cluster, workload=workload, framework=draw(profiles()))


@st.composite
def candidates(
    draw: st.DrawFn, context: Context, count: int, *, gpus: tuple[int, ...] = GPUS, whole: bool = False
) -> StrategyTable:
    """``count`` legal candidates, with repetition; rare choices of an axis are as likely as common ones. ``whole``: no
    recompute of modules or of some layers, which the plain reference does not know."""
    number = draw(st.sampled_from([n for n in gpus if n <= context.cluster.max_devices]))
    table = legal_table(context, number, whole=whole)
    if not len(table):
        table = legal_table(context, 1, whole=whole)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return table.take(np.array([_spread_row(table, rng) for _ in range(count)]))


def _spread_row(table: StrategyTable, rng: np.random.Generator) -> int:
    column = table.column(SPREAD[rng.integers(len(SPREAD))])
    value = rng.choice(np.unique(column))
    return int(rng.choice(np.flatnonzero(column == value)))


def legal_table(context: Context, gpus: int, *, whole: bool = False) -> StrategyTable:
    """All legal candidates on a number of devices."""
    choices = default_choices(context, [gpus]) | {"shard": (ALL_REPLICAS, 2, 4, 8)}
    if whole:
        kinds = tuple(kind for kind in choices["recompute"] if kind <= Recompute.FULL)
        choices |= {"recompute": kinds, "recompute_layers": (0,)}
    space = StrategySpace(choices=choices, context=context)
    return space.table(0, space.size)[0]
