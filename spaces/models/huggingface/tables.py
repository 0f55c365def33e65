"""Tables of families: entries of the YAML files in ``data/`` as the objects that read a configuration."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.families.layer_rules import LAYER_RULES
from forerun.spaces.models.huggingface.families.mixer_rules import MIXERS
from forerun.spaces.models.huggingface.formulas import Formula
from forerun.spaces.models.huggingface.layer_types import pattern_of
from forerun.spaces.models.huggingface.mixtures import Experts

_Entry: TypeAlias = Mapping[str, Any]
_Family = TypeVar("_Family")

_CONVERSIONS: Mapping[str, Callable[[Any], object]] = MappingProxyType(
    {
        "embedding_extra": Formula,
        "experts": lambda entry: Experts(**entry),
        "ffn_width": Formula,
        "harmless": tuple,
        "kv_heads": Formula,
        "layer_extra": Formula,
        "layer_rule": LAYER_RULES.__getitem__,
        "layer_types": pattern_of,
        "mixers": lambda entry: {kind: MIXERS[rule] for kind, rule in entry.items()},
        "model_extra": Formula,
        "nested": tuple,
    }
)
"""Values of the tables that stand for an object, by key."""


@cache
def decoders() -> Mapping[str, Decoder]:
    """Return the decoders of language models by model type; names with an underscore are no model types."""
    return _table(Decoder, "dense_decoders", "mixture_decoders", "hybrid_decoders")


@cache
def token_encoders() -> Mapping[str, Decoder]:
    """Return BERT and its descendants by model type; names with an underscore are no model types."""
    return _table(Decoder, "token_encoders")


def _table(family: Callable[..., _Family], *files: str) -> Mapping[str, _Family]:
    """Make the families of some files, which share their entries."""
    entries: dict[str, _Entry] = {}
    for file in files:
        entries |= package_yaml("forerun.spaces.models.huggingface", "data", f"{file}.yaml")
    table: dict[str, _Family] = {}
    for name, entry in entries.items():
        made = family(**{key: _converted(key, value) for key, value in _complete(entries, entry).items()})
        table |= {kind: made for kind in (name, *entry.get("also", ()))}
    return MappingProxyType(table)


def _complete(entries: Mapping[str, _Entry], entry: _Entry) -> dict[str, Any]:
    """Fill in the keys of the entry that another one is ``like``."""
    base = _complete(entries, entries[entry["like"]]) if "like" in entry else {}
    return base | {key: value for key, value in entry.items() if key not in ("like", "also")}


def _converted(key: str, value: Any) -> object:
    return value if value is None or key not in _CONVERSIONS else _CONVERSIONS[key](value)


def model_types(table: Iterable[str]) -> list[str]:
    """Return the names of a table that are model types."""
    return [name for name in table if not name.startswith("_")]
