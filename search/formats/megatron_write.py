"""Arguments of Megatron-LM for a launch, by their argument names (``tensor_model_parallel_size``)."""

from collections.abc import Iterable

from forerun.search.formats.contract import Launch, Limit
from forerun.search.formats.launchers import Value
from forerun.search.formats.limits import change, is_mixture
from forerun.search.formats.megatron_hybrid import alternates, hybrid_arguments
from forerun.search.formats.megatron_read import MODEL_KEYS, PARALLEL_KEYS
from forerun.search.formats.megatron_stages import laid_out
from forerun.search.formats.model_facts import last_of
from forerun.search.formats.software import exports, flags_of
from forerun.search.formats.writing import settings_of
from forerun.spaces.models.model import Attention, MixtureOfExperts
from forerun.spaces.strategies import MODULES, Recompute, Split

PRECISION: dict[str, dict[str, Value]] = {
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "fp32": {},
    "fp8": {"bf16": True, "fp8_format": "hybrid"},
    "mxfp8": {"bf16": True, "fp8_format": "e4m3"},
    "nvfp4": {"bf16": True, "fp4_format": "e2m1", "fp4_recipe": "nvfp4"},
}
"""Arguments of each precision, besides those of its recipe (a switch); tf32 has none."""


def parallel_arguments(launch: Launch) -> dict[str, Value]:
    """Return the arguments of the strategy, batch sizes not included."""
    s = launch.strategy
    arguments: dict[str, Value] = settings_of(PARALLEL_KEYS, launch)
    if (layout := laid_out(launch)) is not None:
        arguments["pipeline_model_parallel_layout"] = layout
    elif not launch.model.hybrid:  # its pattern of layers has bars between stages
        ends = {"embedding": (Split.LIGHT_ENDS,), "loss": (Split.LIGHT_LAST, Split.LIGHT_ENDS)}
        arguments |= {f"account_for_{end}_in_pipeline_split": True for end, splits in ends.items() if s.split in splits}
    modules = tuple(name for name, module in MODULES.items() if s.recompute & module)
    if s.recompute_first:
        return arguments | {"recompute_method": "block", "recompute_num_layers": s.recompute_first}
    if s.recompute == Recompute.FULL:
        return arguments | {"recompute_method": "uniform", "recompute_num_layers": s.recompute_group}
    return arguments | ({"recompute_granularity": "selective", "recompute_modules": modules} if modules else {})


def sharding_of(launch: Launch, flags: Iterable[str]) -> dict[str, Value]:
    """Return the argument of the distributed optimizer for an unsharded strategy with the precision-aware optimizer.

    The latter is part of the former (megatron-core, optimizer_config.py); one replica may use it, too.
    """
    return {"use_distributed_optimizer": True} if not launch.strategy.zero and _by_precision(flags) else {}


def _by_precision(flags: Iterable[str]) -> bool:
    return any(name.endswith("use_precision_aware_optimizer") for name in flags)


def sharded_states(framework: str) -> Limit:
    """Return the limit "replicas share states that are offloaded or of other types"."""

    def broken(launch: Launch) -> bool:
        s = launch.strategy
        return not s.zero and s.dp * s.cp > 1 and _by_precision(exports(flags_of(launch, framework))[0])

    return Limit(
        broken=broken,
        reason=lambda launch: (
            "optimizer states in the host's memory or other types need the distributed optimizer: zero=1"
        ),
        fix=lambda launch: change(launch, zero=1),
    )


def model_arguments(launch: Launch) -> dict[str, Value]:
    """Return the arguments of the model; ``model_remarks`` lists omitted parts."""
    model, (_, mlp, _) = launch.model, last_of(launch.model)
    arguments: dict[str, Value] = settings_of(MODEL_KEYS, launch)
    arguments |= {"no_create_attention_mask_in_dataloader": True, "attention_dropout": 0.0, "hidden_dropout": 0.0}
    if isinstance(mlp, MixtureOfExperts) and mlp.top_groups < mlp.groups:
        arguments |= {"moe_router_num_groups": mlp.groups, "moe_router_group_topk": mlp.top_groups}
    if is_mixture(model) and launch.workload.moe_imbalance == 1:
        arguments["moe_router_force_load_balancing"] = True
    if model.hybrid:
        return arguments | hybrid_arguments(launch)
    return arguments | ({"experimental_attention_variant": "gated_delta_net"} if alternates(model) else {})


def model_remarks(launch: Launch) -> list[str]:
    """List the parts of a model missing in its arguments, one sentence each."""
    remarks = [
        "only arguments that decide the cost are written: rotary base and scaling, the norms' epsilon, the kind of "
        "activation, soft caps, sinks and the router's scores have Megatron-LM's defaults; set them before training"
    ]
    model = launch.model
    attentions = [layer.mixer for layer in model.layers if isinstance(layer.mixer, Attention)]
    if any(attention.window for attention in attentions):
        remarks.append("sliding windows are not written; set --window-size and --window-attn-skip-freq")
    if len({(attention.heads, attention.kv_heads, attention.head_dim) for attention in attentions}) > 1:
        remarks.append("layers differ in their attention; only the last one's shape is written")
    _, mlp, _ = last_of(model)
    if isinstance(mlp, MixtureOfExperts) and (mlp.router_bias or mlp.expert_bias):
        remarks.append("biases of router or experts are not written")
    if isinstance(mlp, MixtureOfExperts) and launch.workload.moe_imbalance == 1:
        remarks.append("the router is forced to balance, as predicted; drop --moe-router-force-load-balancing to learn")
    return remarks
