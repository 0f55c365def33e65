"""Tables of families: entries of the YAML files in ``data/`` as readers of a configuration."""

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.formulas import Formula
from forerun.spaces.models.huggingface.layer_rules import LAYER_RULES
from forerun.spaces.models.huggingface.layer_types import pattern_of
from forerun.spaces.models.huggingface.mixer_rules import MIXERS
from forerun.spaces.models.huggingface.mixtures import experts_of
from forerun.spaces.models.huggingface.towers import Tower

_Entry: TypeAlias = Mapping[str, Any]
_Family = TypeVar("_Family")

_CONVERSIONS: Mapping[str, Callable[[Any], object]] = MappingProxyType(
    {
        "embedding_extra": Formula,
        "experts": experts_of,
        "ffn_width": Formula,
        "harmless": tuple,
        "kv_heads": Formula,
        "layer_extra": Formula,
        "layer_rule": LAYER_RULES.__getitem__,
        "layer_types": pattern_of,
        "merger": Formula,
        "mixers": lambda entry: {kind: MIXERS[rule] for kind, rule in entry.items()},
        "model_extra": Formula,
        "nested": tuple,
        "norms": lambda norms: norms if isinstance(norms, int) else Formula(norms),
        "shares_weights": Formula,
    }
)
"""Conversions of the values of tables to objects, by key."""


@cache
def decoders() -> Mapping[str, Decoder]:
    """Return the decoders of language models by model type; names with an underscore are not model types."""
    return table(Decoder, "dense_decoders", "mixture_decoders", "hybrid_decoders")


@cache
def token_encoders() -> Mapping[str, Decoder]:
    """Return BERT and its descendants by model type; names with an underscore are not model types."""
    return table(Decoder, "token_encoders")


@cache
def towers() -> Mapping[str, Tower]:
    """Return the image encoders of one stack by model type; names with an underscore are not model types."""
    return table(Tower, "image_encoders")


def table(
    family: Callable[..., _Family], *files: str, conversions: Mapping[str, Callable[[Any], object]] = _CONVERSIONS
) -> Mapping[str, _Family]:
    """Make the families of several files with shared entries.

    Parameters
    ----------
    family
        Constructor called with the keys of each entry.
    files
        Names of files in ``data/`` without their ending.
    conversions
        Functions that convert the values of some keys.
    """
    entries: dict[str, _Entry] = {}
    for file in files:
        entries |= package_yaml("forerun.spaces.models.huggingface", "data", f"{file}.yaml")
    families: dict[str, _Family] = {}
    for name, entry in entries.items():
        keys = _complete(entries, entry)
        for key in keys.keys() & conversions.keys():
            keys[key] = keys[key] if keys[key] is None else conversions[key](keys[key])
        families |= dict.fromkeys((name, *entry.get("also", ())), family(**keys))
    return MappingProxyType(families)


def _complete(entries: Mapping[str, _Entry], entry: _Entry) -> dict[str, Any]:
    """Add the keys of the entry named by ``like``."""
    keys = _complete(entries, entries[entry["like"]]) if "like" in entry else {}
    keys |= {key: value for key, value in entry.items() if key not in ("like", "also", "more_harmless")}
    if "more_harmless" in entry:
        keys["harmless"] = [*keys.get("harmless", ()), *entry["more_harmless"]]
    return keys


def public(table: Mapping[str, _Family]) -> dict[str, _Family]:
    """Return the entries of a table whose names are model types."""
    return {name: family for name, family in table.items() if not name.startswith("_")}
