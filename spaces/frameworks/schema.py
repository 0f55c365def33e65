"""Schema of a user's framework: every field of a profile with its words or range."""

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model

from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks.profile import FrameworkProfile, Legality
from forerun.spaces.frameworks.switches import Switch, all_switches, as_word

FREE_WORDS = ("vendors", "architectures")
"""Fields with device names as values, including a user's own."""
UNSTATED = ("name", "lineage", "switches", "legality")
"""Fields of a profile that a file does not have as such."""
OPERATORS = (
    "layernorm", "rmsnorm", "gelu", "swiglu", "clamped_swiglu", "expert_bias", "softmax", "softmax_half", "dropout",
    "rope", "residual_add", "residual_dropout", "cross_entropy", "embedding", "cast", "cast_scaled",
    "cast_blocks", "cast_rows", "copy",
)  # fmt: skip
"""Memory-bound operators (``forerun.simulator.costs.stream_operators``)."""
_WORDS = {
    "attention": ("flash", "flash2", "flash_triton", "flash1", "fused_softmax", "unfused", "unfused_half"),
    "selective": ("core", "products"),
    "eight_bit_recipe": ("delayed", "current", "block", "mx", "row"),
    "vocabulary": ("ends", "vocab-1", "vocab-2", "interlaced"),
    "gradient_sync": ("microbatch", "round", "pipeline", "step"),
    "sequence_parallel": ("optional", "always", "never"),
    "eager": OPERATORS,
    "unit_parameters": ("", "flat", "each"),
    "graphs": ("none", "layers", "step"),
    "graphed": ("attention", "mlp", "router", "experts"),
    "host_tensors": ("optimizer", "parameters"),
}
_DEGREES = ("zero_stages", "partial_zero", "zero_with_pipeline")
_SHARES = (
    "fragmentation", "pipeline_idle", "allocator_stall", "dispatch_share", "optimizer_on_host", "activations_on_host",
)  # fmt: skip
_RANGES = {
    "main_grad_to_zero": (-1, 3),
    "overlap_slowdown": (1, 10),
    "expert_multiprocessors": (0, 1000),
    "bucket_copies": (0, 100),
    "step_bytes": (0, 1e4),
    "bucket_bytes": (1, 1e12),
    "live_parameters": (0, 1e12),
    **dict.fromkeys(("context_bytes", "communicator_bytes", "bucket_rank_bytes"), (0, 1e12)),
    **dict.fromkeys(_DEGREES, (0, 3)),
    **dict.fromkeys(_SHARES, (0, 1)),
}
_PER_PARAMETER = 64
"""Largest number of bytes per parameter or logit."""
_LONGEST_S = 3600


class _Stated(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


@cache
def profile_schema(legality_words: Callable[[str], tuple[str, ...]]) -> type[BaseModel]:
    """Return the schema of a file that is ``like`` a profile; ``legality_words``: words of a field of ``Legality``."""

    def part(name: str, profile: type, skipped: tuple[str, ...], **more: Any) -> type[BaseModel]:
        kinds = get_type_hints(profile)
        known: dict[str, Any] = {
            field.name: (_kind(field.name, kinds[field.name], legality_words), None)
            for field in fields(profile)
            if field.name not in skipped
        }
        return create_model(name, __base__=_Stated, **known, **more)

    settings: dict[str, Any] = {
        name.replace("-", "_"): (
            Annotated[_setting(switch), BeforeValidator(as_word)],
            Field(None, alias=name),
        )
        for name, switch in all_switches().items()
    }
    return part(
        "ProfileDocument",
        FrameworkProfile,
        UNSTATED,
        like=(str, ...),
        legality=(part("LegalityDocument", Legality, ()), None),
        switches=(create_model("SwitchDocument", __base__=_Stated, **settings), None),
    )


def _setting(switch: Switch) -> Any:
    """Return the type of a setting of a switch: one of its words, or a text with a share."""

    def read(setting: str) -> str:
        try:
            return switch.read(setting)
        except RequestError as error:
            raise ValueError(error) from None

    return Annotated[str, AfterValidator(read)] if switch.share else Literal[tuple(switch.values)]


def _kind(name: str, kind: Any, legality_words: Callable[[str], tuple[str, ...]]) -> Any:
    """Return the type of a field in a document, with its range or its words."""
    if kind is str:
        return Literal[_WORDS[name]] if name in _WORDS else str
    if name in FREE_WORDS:
        return list[str]
    if kind == tuple[str, ...]:
        return list[Literal[_WORDS.get(name) or legality_words(name)]]  # type: ignore[misc]  # words are data
    if kind is bool:
        return bool
    low, high = _range(name)
    if kind == tuple[int, ...]:
        return list[Annotated[int, Field(ge=low, le=high)]]
    return Annotated[int if kind is int else float, Field(ge=low, le=high)]


def _range(name: str) -> tuple[float, float]:
    """Return the smallest and largest value of a number."""
    if name in _RANGES:
        return _RANGES[name]
    if name.startswith("overlap_"):
        return 0, 1
    return (0, _LONGEST_S) if name.endswith("_s") else (0, _PER_PARAMETER)
