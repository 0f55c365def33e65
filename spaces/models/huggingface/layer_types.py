"""Types of layers, from the list of a configuration or from the pattern of its family's code."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.fields import Fields, unused
from forerun.spaces.models.huggingface.formulas import Count, Formula

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR = "linear_attention"
Pattern: TypeAlias = Callable[[Fields, int], Sequence[str]]
"""Function that makes the types of all layers, given their number."""

_SPELLINGS = {"attention": FULL, "global": FULL, "full": FULL, "local": SLIDING, "sliding": SLIDING}


def layer_types(fields: Fields, count: int, pattern: Pattern | None, *, known: Sequence[str]) -> list[str]:
    """Determine the type of each of ``count`` layers.

    ``pattern`` makes the types where the configuration has no list (None: all full). Sliding layers without a window
    have full attention.

    Raises
    ------
    RequestError
        A type is not among ``known``, the list has another length, or its window is missing.
    """
    listed = fields.listed("layer_types", str, length=count)
    if listed is None:
        listed = fields.listed("layers_block_type", str, length=count)
    if listed is not None:
        fields.accept(*unused("patterns of layers"))
    types = list(pattern(fields, count) if pattern else [FULL] * count) if listed is None else list(listed)
    types = [kind if kind in known else _SPELLINGS.get(kind, kind) for kind in types]
    for kind in types:
        if kind not in known:
            raise RequestError(f"{fields.source}: layer_types has {kind!r}; forerun knows {' and '.join(known)}")
    if SLIDING in types and not fields.has("sliding_window"):
        if listed is not None:
            raise RequestError(f"{fields.source}: layer_types has sliding_attention, but sliding_window is missing")
        types = [FULL if kind == SLIDING else kind for kind in types]
    return types


def pattern_of(entry: Any) -> Pattern:
    """Make the pattern of a table's entry: a function below by name, or a general pattern with its settings."""
    if isinstance(entry, str):
        return PATTERNS[entry]
    if "every" in entry:
        return partial(_every, **{"period" if key == "every" else key: value for key, value in entry.items()})
    if "numbers" in entry:
        otherwise = pattern_of(entry.get("otherwise", "all_full"))
        return partial(_by_numbers, name=entry["numbers"], kinds=entry["kinds"], otherwise=otherwise)
    if "where" in entry:
        return partial(_by_formula, where=Formula(entry["where"]), kind=entry["kind"], other=entry["other"])
    return partial(_by_index, **{"name" if key == "listed" else key: value for key, value in entry.items()})


def _every(
    config: Fields, count: int, *, period: int, fields: Sequence[str] = (), other: str = SLIDING, first: bool = False
) -> list[str]:
    """Make one layer in ``period`` full (the last one, or the ``first``), the others ``other``."""
    # The last given field of ``fields`` replaces the period: a number, or a text with a letter per layer ("LLLG").
    for name in fields:
        value = config.raw(name)
        if isinstance(value, str) and value:
            period = len(value)
        elif value is not None:
            period = config.size(name)
    place = 0 if first else period - 1
    return [FULL if index % period == place else other for index in range(count)]


def _by_numbers(
    fields: Fields, count: int, *, name: str, kinds: Mapping[int, str], otherwise: Pattern
) -> Sequence[str]:
    """Read a number per layer from the list ``name``; ``kinds``: their types."""
    listed = fields.listed(name, int, length=count)
    if listed is None:
        return otherwise(fields, count)
    return [kinds.get(one, f"{name}={one}") for one in listed]


def _by_index(fields: Fields, count: int, *, name: str, kind: str, other: str, missing: str | None = None) -> list[str]:
    """Make layers of one ``kind`` where their numbers are in the list ``name``, and of the ``other`` elsewhere."""
    # Without the list all are ``missing`` (default: ``other``).
    listed = fields.listed(name, int)
    if listed is None:
        return [missing or other] * count
    return [kind if index in listed else other for index in range(count)]


def _by_formula(fields: Fields, count: int, *, where: Count, kind: str, other: str) -> list[str]:
    """Make layers of one ``kind`` where a formula of the layer number ``index`` is true, otherwise ``other``."""
    return [kind if where(fields, index=index) else other for index in range(count)]


def _all_sliding(fields: Fields, count: int) -> list[str]:
    """Make every layer windowed if there is a window (Mistral)."""
    return [SLIDING if fields.optional_size("sliding_window") else FULL] * count


def _max_window_layers(fields: Fields, count: int) -> list[str]:
    """Make layers from ``max_window_layers`` on windowed if ``use_sliding_window`` is set (Qwen2)."""
    window = fields.optional_size("sliding_window", least=0)
    first = fields.optional_size("max_window_layers", least=0)
    if not fields.flag("use_sliding_window", False) or not window:
        return [FULL] * count
    start = 28 if first is None else first  # class default, configuration_qwen2.py
    return [SLIDING if index >= start else FULL for index in range(count)]


def _gpt_neo(fields: Fields, count: int) -> list[str]:
    """Make layers alternately global and local, or as listed in ``attention_layers``."""
    kinds = fields.listed("attention_layers", str, length=count)
    fields.raw("attention_types")
    kinds = kinds or [("global", "local")[index % 2] for index in range(count)]
    return [SLIDING if kind == "local" else FULL for kind in kinds]


def _kimi(fields: Fields, count: int) -> list[str]:
    """Make the layers in ``kda_layers`` of ``linear_attn_config`` linear; layers count from 1."""
    linear = set(fields.mapping("linear_attn_config").listed("kda_layers", int) or ())
    return [LINEAR if index + 1 in linear else FULL for index in range(count)]


def _griffin(fields: Fields, count: int) -> list[str]:
    kinds = fields.listed("block_types", str) or fields.listed("_block_types", str)
    kinds = kinds or ["recurrent", "recurrent", "attention"]
    return [kinds[index % len(kinds)] for index in range(count)]


def _deepseek_v4(fields: Fields, count: int) -> list[str]:
    """Make three heavily compressed layers, followed by alternate ones with the sparse kind; or use given ratios."""
    ratios = fields.listed("compress_ratios", int)
    kinds = {0: SLIDING, 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    if ratios is not None:
        return [kinds.get(ratio, kinds[128]) for ratio in ratios[:count]]
    return [kinds[128] if index < 3 or index % 2 == 0 else kinds[4] for index in range(count)]


PATTERNS: Mapping[str, Pattern] = MappingProxyType(
    {
        "all_full": lambda _, count: [FULL] * count,
        "all_sliding": _all_sliding,
        "deepseek_v4": _deepseek_v4,
        "gpt_neo": _gpt_neo,
        "griffin": _griffin,
        "kimi": _kimi,
        "max_window_layers": _max_window_layers,
    }
)
"""Patterns by their names in the tables."""
