"""Table of Megatron-LM's arguments for its scripts and logs, Megatron-Bridge, NeMo, and related software."""

from forerun.search.formats.contract import Launch
from forerun.search.formats.keys import LaunchFacts, decide, switched_on
from forerun.search.formats.launcher_data import shared_keys
from forerun.search.formats.limits import is_mixture
from forerun.search.formats.megatron_stages import laid_out, read_stages
from forerun.search.formats.model_facts import model_facts
from forerun.spaces.frameworks import all_switches
from forerun.spaces.strategies import MODULES, Recompute, in_groups

SHARDING = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
"""``--data-parallel-sharding-strategy`` of Megatron-FSDP as ZeRO stages."""


def _grouped(launch: Launch) -> bool:
    return bool(model_facts(launch.model, 0).get("grouped_query_attention"))


def _numbered(launch: Launch) -> bool:
    """Whether virtual stages are given by number, not by a layout or the bars of a pattern."""
    return launch.strategy.vpp > 1 and laid_out(launch) is None and not launch.model.hybrid


def _shared(launch: Launch) -> bool:
    """Whether several replicas share states."""
    return launch.strategy.zero > 0 and launch.strategy.dp * launch.strategy.cp > 1


CONDITIONS = {
    "mixture": lambda launch: is_mixture(launch.model),
    "grouped": _grouped,
    "numbered": _numbered,
    "several": _shared,
    "no pattern": lambda launch: not launch.model.hybrid,
}
"""Conditions of launches for some arguments."""
PARALLEL_KEYS, BATCH_KEYS, MODEL_KEYS = (shared_keys(name, CONDITIONS) for name in ("parallel", "batch", "model"))
KEYS = (
    *PARALLEL_KEYS,
    *BATCH_KEYS,
    decide("precision", "bf16", words=switched_on("bf16")),
    decide("precision", "fp16", words=switched_on("fp16")),
    *MODEL_KEYS,
)


def adjust(facts: LaunchFacts) -> None:
    """Determine joint decisions of arguments.

    Raises
    ------
    RequestError
        Arguments contradict each other.
    """
    facts.assume("mbs", 1, "the file has no micro_batch_size")
    _experts(facts)
    read_stages(facts)
    _sharding(facts)
    _recompute(facts)
    _precision(facts)
    _layers_on_host(facts)
    if facts.get("sp") and facts.get("tp", 1) == 1:
        facts.notes.append("sequence parallel has no effect with tp=1; Megatron-LM switches it off")


def _experts(facts: LaunchFacts) -> None:
    """Determine etp: by default tp, for a model with experts."""
    tp, etp = facts.get("tp", 1), facts.values.pop("etp", None)
    if "model.experts" in facts.values or facts.get("ep", 1) > 1:
        facts.values["etp"] = tp if etp is None else etp
    elif etp not in (None, 1, tp):
        facts.notes.append(f"expert_tensor_parallel_size={etp} has no effect: the file names no experts")


def _sharding(facts: LaunchFacts) -> None:
    settings = facts.settings
    sharding = settings.one_of("data_parallel_sharding_strategy", SHARDING)
    if settings.raw("optimizer") == "dist_muon":  # it always shards states
        facts.values["zero"] = 1
    if settings.flag("use_megatron_fsdp", "use_custom_fsdp"):
        facts.values["zero"] = SHARDING[sharding or "no_shard"]
    # DeepSpeed's bfloat16 optimizer, used by its pipeline without ZeRO, shards its states over replicas.
    half = facts.get("precision") == "bf16" and facts.get("pp", 1) > 1 and settings.flag("deepspeed")
    if half and settings.whole("zero_stage", least=0) == 0:
        facts.notes.append(
            "zero_stage=0 with bf16 and a pipeline: DeepSpeed's BF16 optimizer shards its states; read as zero=1"
        )
        facts.values["zero"] = 1


def _recompute(facts: LaunchFacts) -> None:
    """Determine the recomputed layers or modules."""
    settings = facts.settings
    granularity = settings.text("recompute_granularity", "activations_checkpoint_granularity")
    method = settings.text("recompute_method", "activations_checkpoint_method")
    some = settings.whole("recompute_num_layers", "activations_checkpoint_num_layers")
    modules = settings.raw("recompute_modules")
    settings.whole("checkpoint_num_layers", least=0)
    if granularity == "full" and some and method in ("block", "uniform", None):
        layers, stages = facts.get("model.layers"), facts.get("pp", 1) * facts.get("vpp", 1)
        most = -(-layers // stages) if isinstance(layers, int) else None  # layers of one stage
        if method != "block":
            facts.values["recompute_layers"] = in_groups(min(some, most or some))
        elif most is None or some < most:
            facts.values["recompute_layers"] = some
    if granularity == "full" and method == "block" and not facts.get("recompute_layers"):
        facts.notes.append(f"recompute of {some or 1} layers by block is read as recompute=full: all layers")
    if facts.get("recompute") == Recompute.SELECTIVE:
        names = [*map(str, modules)] if isinstance(modules, list | tuple) else str(modules or "core_attn").split()
        known = [MODULES[name] for name in names if name in MODULES]
        if lost := [name for name in names if name not in MODULES]:
            facts.notes.append(f"recompute of {', '.join(lost)} is not part of a strategy")
        if known:
            facts.values["recompute"] = Recompute(sum(dict.fromkeys(known)))


def _layers_on_host(facts: LaunchFacts) -> None:
    """Determine the share of layers whose activations are offloaded entirely (Transformer Engine)."""
    some, layers = facts.settings.whole("cpu_offloading_num_layers", least=0), facts.get("model.layers")
    facts.settings.raw("cpu_offloading")
    if some and isinstance(layers, int) and some < layers:
        facts.switches["activation-offload"] = all_switches()["activation-offload"].read(str(some / layers))


def _precision(facts: LaunchFacts) -> None:
    settings = facts.settings
    eight, four = settings.text("fp8_format", "fp8"), settings.text("fp4_format", "fp4")
    recipe = settings.text("fp8_recipe")
    settings.raw("fp4_recipe")
    if four and four.lower() != "none":
        facts.values["precision"] = "nvfp4"
    elif eight and eight.lower() not in ("none", "false"):
        facts.values["precision"] = "mxfp8" if recipe == "mxfp8" else "fp8"
        if recipe not in (None, "delayed", "tensorwise", "blockwise", "mxfp8"):
            facts.notes.append(f"fp8 recipe {recipe} is read as precision fp8")
