"""Low-rank adapters in launch files: their products, by names of modules."""

from collections.abc import Collection, Sequence
from typing import Any

from forerun.search.formats.contract import Launch, Limit
from forerun.search.formats.keys import LaunchFacts
from forerun.spaces.models.model import Attention, FeedForward, MixtureOfExperts, Model
from forerun.spaces.models.tuning import DEFAULT_TARGETS, TARGETS

TARGET_KEYS = ("lora_target_modules", "lora_target", "target_modules", "lora_modules")
"""Settings that list the modules with adapters."""
NEMO_TARGETS = "model.peft.lora_tuning.target_modules"
QUANTISING = ("load_in_4bit", "load_in_8bit", "use_4bit", "quantization_bit", "bits")
"""Settings that keep frozen matrices in few bits."""
LORA = "LoRA"
QUANTISED = "LoRA of a quantised model"

_ATTENTION, _MLP, _EXPERTS = TARGETS
_LLAMA = {
    _ATTENTION: "q_proj k_proj v_proj o_proj",
    _MLP: "gate_proj up_proj down_proj",
}
"""Modules of a layer by Llama's names, common to most models of transformers."""
_OTHERS = {
    _ATTENTION: (
        "qkv_proj out_proj c_attn query_key_value q_a_proj q_b_proj kv_a_proj_with_mqa kv_b_proj linear_qkv "
        "linear_proj linear_q_proj linear_q_down_proj linear_q_up_proj linear_kv_down_proj linear_kv_up_proj "
        "attention_qkv attention_dense"
    ),
    _MLP: "gate_up_proj c_fc fc1 fc2 fc_in fc_out dense_h_to_4h dense_4h_to_h linear_fc1 linear_fc2 mlp_fc1 mlp_fc2",
}
_PRODUCTS = {name: product for table in (_LLAMA, _OTHERS) for product, names in table.items() for name in names.split()}
_WHOLE = [{*_LLAMA[product].split()} for product in (_ATTENTION, _MLP)]
_ALL = ("all", "all-linear")


def stated_adapters(facts: LaunchFacts) -> str | None:
    """Return the adapters of a file in the form of ``--lora``, None without adapters; inexpressible facts become notes.

    Modules are a list, or a text separated by commas or blanks; by default all of attention and feed-forwards.
    """
    kind, rank = facts.get("adapter"), facts.get("adapter_rank")
    if kind is None:
        return None
    if kind not in (LORA, QUANTISED) or rank is None:
        facts.notes.append(f"{kind} is trained and the rest is frozen; a strategy is of training all of it")
        return None
    few_bits = [str(facts.settings.raw(name)).lower() in ("true", "1", "4", "8") for name in QUANTISING]
    if kind == QUANTISED or any(few_bits):
        facts.notes.append("frozen matrices are in four or eight bit there; they are counted in the run's precision")
    targets = facts.settings.raw(
        "peft.target_modules", NEMO_TARGETS, *TARGET_KEYS, *(f"program.{name}" for name in TARGET_KEYS)
    )
    listed = targets.replace(",", " ").split() if isinstance(targets, str) else targets
    names = [*map(str, listed)] if isinstance(listed, list | tuple) else []
    products = _products(names, "model.experts" in facts.values)
    short = {name.rpartition(".")[2] for name in names}
    if any(short & module and not module <= short for module in _WHOLE):
        facts.notes.append(f"LoRA on {', '.join(sorted(short))} is costed as LoRA on all of {' and '.join(products)}")
    return f"{rank}:{'+'.join(products)}"


def _products(names: Sequence[str], mixture: bool) -> tuple[str, ...]:
    """Return the products of modules in the order of ``TARGETS``; the default of ``--lora`` if no name is known.

    In a ``mixture``, a bare name of a feed-forward also means experts.
    """
    last = [_EXPERTS if ".experts." in name else name.rpartition(".")[2] for name in names]
    products = {_PRODUCTS.get(name, name) for name in last} & {*TARGETS}
    products |= {_EXPERTS} if mixture and any(_PRODUCTS.get(name) == _MLP for name in names) else set()
    products |= {*DEFAULT_TARGETS} if {*names} & {*_ALL} or not products else set()
    return tuple(product for product in TARGETS if product in products)


def hub_modules(launch: Launch) -> list[str]:
    """Return the modules with adapters of a model of the hub, by Llama's names: suffixes, as matched by PEFT."""
    model, targets = launch.model, launch.tuning.targets
    mixed = "q_a_proj q_b_proj kv_a_proj_with_mqa kv_b_proj o_proj" if _latent(model) else _LLAMA[_ATTENTION]
    modules = mixed.split() if _ATTENTION in targets else []
    for block in _feed_forwards(model, targets, dense="mlp.", shared="shared_experts."):
        modules += [f"{block}{name}" for name in _LLAMA[_MLP].split()]
    return modules


def adapter_arguments(launch: Launch) -> list[str]:
    """Return the adapters of a launch as arguments of TRL's ModelConfig; none without adapters."""
    if not launch.tuning.rank:
        return []
    names = " ".join(hub_modules(launch))
    return ["--use_peft true", f"--lora_r {launch.tuning.rank}", f"--lora_target_modules {names}"]


def bridge_section(launch: Launch) -> dict[str, Any]:
    """Return the section ``peft`` of Megatron-Bridge; empty without adapters.

    Its patterns are suffixes or contain stars, and each must match a module (module_matcher.py).
    """
    model, tuning = launch.model, launch.tuning
    if not tuning.rank:
        return {}
    latent = "q_down_proj q_up_proj kv_down_proj kv_up_proj proj"
    names = (latent if _latent(model) else "qkv proj").split() if _ATTENTION in tuning.targets else []
    modules = [f"linear_{name}" for name in names]
    for block in _feed_forwards(model, tuning.targets, dense="*.mlp.", shared="*.shared_experts."):
        modules += [f"{block}linear_{name}" for name in ("fc1", "fc2")]
    return {
        "_target_": "megatron.bridge.peft.lora.LoRA",
        "dim": tuning.rank,
        "alpha": 2 * tuning.rank,
        "target_modules": modules,
    }


def _latent(model: Model) -> bool:
    return any(isinstance(layer.mixer, Attention) and layer.mixer.latent is not None for layer in model.layers)


def _feed_forwards(model: Model, targets: Collection[str], *, dense: str, shared: str) -> list[str]:
    """Return the prefixes of modules in blocks with adapters."""
    mixtures = [layer.mlp for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts)]
    if _EXPERTS in targets or not mixtures:
        return [""] if {_MLP, _EXPERTS} & {*targets} else []
    mlps = [dense] if any(isinstance(layer.mlp, FeedForward) for layer in model.layers) else []
    mlps += [shared] if any(mlp.shared is not None for mlp in mixtures) else []
    return mlps if _MLP in targets else []


def _alone(launch: Launch) -> bool:
    """Whether routed experts have adapters and other feed-forwards of the model have none."""
    tuning = launch.tuning
    others = tuning.rank and _feed_forwards(launch.model, (_MLP,), dense="dense", shared="shared")
    return _EXPERTS in tuning.targets and _MLP not in tuning.targets and bool(others)


EXPERTS_ALONE = Limit(
    broken=_alone,
    reason=lambda launch: "adapters of experts alone: modules of other feed-forwards have the same names",
    fix=None,
)
ATTENTION_ALONE = Limit(
    broken=lambda launch: (
        launch.tuning.rank > 0
        and any(layer.mixer is not None and not isinstance(layer.mixer, Attention) for layer in launch.model.layers)
    ),
    reason=lambda launch: f"adapters of {launch.model.name}: not all of its layers attend",
    fix=None,
)
ADAPTERS = (EXPERTS_ALONE, ATTENTION_ALONE)
"""Limits of all formats that write adapters."""
