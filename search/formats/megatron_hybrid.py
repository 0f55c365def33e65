"""Megatron-core's hybrid models: a letter per layer, as in ``M-M-M*-|M-M*-/*-``.

Stages are between ``|``, prediction blocks after ``/``.

``M`` Mamba-2, ``*`` attention, ``-`` feed-forward, ``E`` experts. Source: ``hybrid_layer_allocation.py`` of
megatron-core 0.19. A layer with a mixer and a feed-forward has two letters.
"""

import re
from collections.abc import Sequence
from typing import Any

from forerun.search.formats.contract import Launch, Limit
from forerun.search.formats.layers import counts_of
from forerun.search.formats.limits import change
from forerun.search.formats.model_facts import last_of
from forerun.spaces.errors import RequestError
from forerun.spaces.models.mixers import GatedDelta, Mamba2
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts, Model
from forerun.spaces.strategies import Strategy

PROGRAM = "pretrain_hybrid.py"
SPECIFICATION = ("megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec")
TAPS, CHUNK = 4, 128
"""Fixed sizes of the convolution and of the scan (mamba_mixer.py)."""

_PAIRS = re.compile(r"(?:[MG*+DCH][-E])+")
_LETTERS = re.compile(r"[MG*DCH+E|/-]+")


def alternates(model: Model) -> bool:
    """Whether the gated delta rule replaces attention in some layers of ``pretrain_gpt.py``."""
    return not model.hybrid and any(isinstance(layer.mixer, GatedDelta) for layer in model.layers)


def _letters(layer: Layer) -> str:
    """Return the letters of a layer, "" if a part has no letter."""
    mixer: str | None = "" if layer.mixer is None else None
    if isinstance(layer.mixer, Mamba2):
        mixer = "M"
    elif isinstance(layer.mixer, Attention) and layer.mixer.latent is None and layer.mixer.causal:
        mixer = "*"
    mlp = {FeedForward: "-", MixtureOfExperts: "E", type(None): ""}[type(layer.mlp)]
    return "" if mixer is None else mixer + mlp


def lacking(model: Model) -> list[str]:
    """Return the parts of a hybrid model without a letter or an argument in Megatron-core."""
    layers = model.layers
    if alternates(model):
        return _lacking_of_delta({layer.mixer for layer in layers if isinstance(layer.mixer, GatedDelta)})
    missing = [
        f"{layer.mixer.name}"
        if layer.mixer is not None and not isinstance(layer.mixer, Attention)
        else "such attention"
        for layer in layers
        if not _letters(layer)
    ]
    if len({len(_letters(layer)) for layer in layers} - {0}) > 1:
        missing.append("whole layers among layers of one part")
    for mixer in (layer.mixer for layer in layers):
        if isinstance(mixer, Mamba2) and (mixer.convolution, mixer.chunk) != (TAPS, CHUNK):
            missing.append(f"{mixer.name} with {mixer.convolution} taps and chunks of {mixer.chunk} ({TAPS}, {CHUNK})")
    kinds: tuple[tuple[str, set[Any]], ...] = (
        ("Mamba-2", {layer.mixer for layer in layers if isinstance(layer.mixer, Mamba2)}),
        ("attention", {layer.mixer for layer in layers if isinstance(layer.mixer, Attention)}),
        ("feed-forwards", {layer.mlp for layer in layers if isinstance(layer.mlp, FeedForward)}),
        ("experts", {layer.mlp for layer in layers if isinstance(layer.mlp, MixtureOfExperts)}),
    )
    missing += [f"{name} of {len(kind)} shapes" for name, kind in kinds if len(kind) > 1]
    missing += ["layers that share weights"] if any(layer.shared_weights for layer in layers) else []
    missing += ["cross attention"] if any(layer.cross_attention is not None for layer in layers) else []
    missing += ["learned positions"] if model.learned_positions else []
    return list(dict.fromkeys(missing))


def _lacking_of_delta(mixers: set[GatedDelta]) -> list[str]:
    missing = [f"{mixer.name} with ranks" for mixer in mixers if not _plain(mixer)]
    return [*missing, *(["gated delta rules of several shapes"] if len(mixers) > 1 else [])]


def _plain(mixer: GatedDelta) -> bool:
    return mixer.decay_rank is None and mixer.gate_rank is None


def written_by(framework: str) -> Limit:
    """Return the limit "every part besides attention can be expressed", which has no fix."""
    return Limit(
        broken=lambda launch: not _plainly(launch.model) and bool(lacking(launch.model)),
        reason=lambda launch: (
            f"{launch.model.name}: hybrid models of {framework} have no words for {', '.join(lacking(launch.model))}"
        ),
        fix=None,
    )


def _plainly(model: Model) -> bool:
    return not model.hybrid and not alternates(model)


def beside_hybrids(limit: Limit) -> Limit:
    """Return a limit on models of attention alone."""
    return Limit(
        broken=lambda launch: _plainly(launch.model) and limit.broken(launch), reason=limit.reason, fix=limit.fix
    )


WHOLE_PIPELINE = Limit(
    broken=lambda launch: launch.strategy.vpp > 1 and launch.model.hybrid,
    reason=lambda launch: f"vpp={launch.strategy.vpp}: Megatron-Bridge builds hybrid models without virtual stages",
    fix=lambda launch: change(launch, vpp=1),
)


def pattern_of(model: Model, strategy: Strategy) -> str:
    """Return the letters of a model in the stages of a strategy."""
    each = [_letters(layer) for layer in model.layers for _ in range(layer.count)]
    counts = counts_of(strategy, len(each)) if strategy.pp > 1 else (len(each),)
    ends = [sum(counts[: place + 1]) for place in range(len(counts))]
    stages = ["".join(each[end - count : end]) for end, count in zip(ends, counts, strict=True)]
    return "|".join(stages) + f"/{each[-1]}" * model.mtp_layers


def hybrid_arguments(launch: Launch) -> dict[str, Any]:
    """Return the arguments of a hybrid model besides those of other models, by Megatron-LM's names."""
    model, (_, mlp, _) = launch.model, last_of(launch.model)
    return {
        "hybrid_layer_pattern": pattern_of(model, launch.strategy),
        "spec": SPECIFICATION,
        "squared_relu": mlp is not None and not mlp.gated,
    }


def layers_of(pattern: str, source: str) -> tuple[tuple[int, ...], bool]:
    """Return the layers of every stage of a pattern, and whether prediction blocks follow.

    >>> layers_of("M-M-|M*-", "here"), layers_of("MEME|*EME/*E", "here")
    (((4, 3), False), ((2, 2), True))

    Raises
    ------
    RequestError
        A letter is unknown.
    """
    if not _LETTERS.fullmatch(pattern):
        raise RequestError(
            f"{source}: the layers {pattern[:60]!r} are written with M (Mamba), G (gated delta rule), * (attention), + "
            "and D (latent and sparse), C and H (compressed attention), - (feed-forward), E (experts), | and /"
        )
    main, _, predicts = pattern.partition("/")
    stages = main.split("|")
    letters = 2 if _PAIRS.fullmatch("".join(stages)) and all(len(stage) % 2 == 0 for stage in stages) else 1
    return tuple(len(stage) // letters for stage in stages), bool(predicts)


def stages_of(counts: Sequence[int], pp: int, source: str) -> tuple[int, ...]:
    """Return the layers of every virtual stage on some pipeline ranks: between bars, or equal without bars.

    Raises
    ------
    RequestError
        The layers do not divide.
    """
    if len(counts) == 1 and counts[0] % pp == 0:
        return (counts[0] // pp,) * pp
    if len(counts) % pp:
        raise RequestError(f"{source}: {len(counts)} stages of the layers' pattern, which pp={pp} does not divide")
    return tuple(counts)
