"""Published words -> forerun's: frameworks, families of models, networks and instruments, as data in ``data/``."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.frameworks import framework_names

PROFILE = "profile:"
"""Prefix of a framework that means a profile of the catalogue, without facts of any source."""

_VENDOR = re.compile(
    r"^((NVIDIA|Microsoft|PyTorch|torch|MosaicML|Mosaic|Databricks|Meta|Google|InternLM|OneFlow|PaddlePaddle|AMD|OpenLLM|ROCm)"
    r"('s)?[ /]+)+(?=\w)",
    re.IGNORECASE,
)
"""Vendor names before a framework's name."""
_PUBLISHER = re.compile(r"^[A-Za-z][\w.-]*/(?=[A-Za-z])")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a table: a pattern and its implications."""

    pattern: re.Pattern[str]
    data: Mapping[str, Any]


@cache
def table(name: str, part: str | None = None) -> tuple[Entry, ...]:
    """Return the entries of one data file (``part``: of one of its lists), in order."""
    return _entries(_loaded(name)) if part is None else tables(name)[part]


@cache
def tables(name: str) -> Mapping[str, tuple[Entry, ...]]:
    """Return the lists of one data file by their names."""
    return {part: _entries(entries) for part, entries in _loaded(name).items()}


def _loaded(name: str) -> Any:
    return package_yaml("forerun.search.measured.validate", "data", f"{name}.yaml")


def _entries(entries: Iterable[Mapping[str, Any]]) -> tuple[Entry, ...]:
    return tuple(
        Entry(re.compile(entry["match"], re.IGNORECASE), {k: v for k, v in entry.items() if k != "match"})
        for entry in entries
    )


def first(entries: tuple[Entry, ...], text: str) -> tuple[Mapping[str, Any], re.Match[str]] | None:
    """Return the implications of the first entry that matches ``text``, and the match."""
    for entry in entries:
        if match := entry.pattern.search(text):
            return entry.data, match
    return None


def bare(model: str) -> str:
    """Return a model's name without its publisher.

    >>> bare("mistralai/Mixtral-8x7B-v0.1"), bare("GPT-3 175B")
    ('Mixtral-8x7B-v0.1', 'GPT-3 175B')
    """
    return _PUBLISHER.sub("", model)


def every(entries: tuple[Entry, ...], text: str) -> dict[str, Any]:
    """Return the joint implications of all entries that match ``text``; later entries override."""
    result: dict[str, Any] = {}
    for entry in entries:
        if entry.pattern.search(text):
            result |= entry.data
    return result


def framework_entry(framework: str, date: str = "") -> Mapping[str, Any] | None:
    """Return profile, facts and defaults of a framework's text, None if unknown.

    ``date``: year and month of the software; empty: today's.

    >>> framework_entry("nanotron v0.5")["profile"]
    'nanotron'
    """
    if framework.startswith(PROFILE):
        name = framework.removeprefix(PROFILE)
        return {"profile": name} if name in framework_names() else None
    framework = _VENDOR.sub("", framework)
    for entry in table("frameworks"):
        before, since = entry.data.get("before"), entry.data.get("since", "")
        timely = (not date or since <= date) and (before is None or (date and date < before))
        if timely and entry.pattern.search(f"{framework} @"):
            return entry.data
    return {"profile": framework.lower()} if framework.lower() in framework_names() else None
