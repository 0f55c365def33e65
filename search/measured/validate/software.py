"""Columns about software -> the profile of a framework, with what a row states about its kernels and switches."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from forerun.search.measured.validate.cells import Filled, Skip
from forerun.search.measured.validate.columns import TableRow
from forerun.search.measured.validate.era import assumed_date, release_in, software_date
from forerun.search.measured.validate.facts import Facts, told_of_software
from forerun.search.measured.validate.vocabulary import framework_entry, table
from forerun.simulator.costs.attention import MATERIALISED
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import FrameworkProfile, load_framework
from forerun.spaces.frameworks.switches import (
    all_switches,
    as_word,
    available,
    of_release,
    parse_switches,
    switched,
    with_settings,
)

ATTENTION_KERNELS = ("flash", "flash2", "flash1", *MATERIALISED)


EARLY_STOP_SINCE = "2023-10"
"""Date of PyTorch 2.1, from which non-reentrant checkpoints stop early (``set_checkpoint_early_stop``)."""
_STAGE = re.compile(r"\bZeRO[- ]?(?:stage[- ]?)?([1-3])\b", re.IGNORECASE)

UNKNOWN: Mapping[str, Any] = {
    "profile": "megatron-lm",
    "flash": "flash2",
    "facts": {
        "eager": ["layernorm", "rmsnorm", "gelu", "swiglu", "rope", "cross_entropy"],
        "fused_accumulation": False,
        "attention": "flash2",
        "lineage": ["unknown"],
    },
}
"""Profile of an undescribed trainer: Megatron-LM's overlaps, one PyTorch kernel per operation. Outside Transformer
Engine attention is FlashAttention 2, as in four trainers on Hopper. Runs of six other trainers, read as undescribed,
are predicted 12 % too fast with Megatron-LM's profile and without bias with this one, in the median of tables
(docs/decisions/accuracy-by-source.md)."""


def entry_of(row: TableRow) -> Mapping[str, Any] | None:
    """Return the entry of a row's framework at the date of its software; None if unknown."""
    return framework_entry(row["framework"], software_date(row) or assumed_date(row))


def unknown_profile() -> FrameworkProfile:
    """Return the profile of an undescribed trainer."""
    return replace(load_framework(UNKNOWN["profile"]), **_changes(UNKNOWN))


def _changes(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the differences of an entry from its profile."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in entry.get("facts", {}).items()}


def defaults_of(row: TableRow) -> dict[str, Any]:
    """Return the defaults of the row's framework for blank cells; its text may name the ZeRO stage."""
    defaults = dict((entry_of(row) or {}).get("defaults", {}))
    if match := _STAGE.search(row["framework"]):
        defaults["zero"] = int(match[1])
    return defaults


SOFTWARE_COLUMNS = (
    "framework", "source", "notes", "attention", "switches", "software_date", "software_version",
    "device", "model", "precision", "schedule",
)  # fmt: skip
"""Inputs of a row's profile, including facts from its notes."""


def profile_of(row: TableRow, facts: Facts, filled: Filled) -> FrameworkProfile:
    """Return the framework profile of a row with the row's facts about kernels.

    Raises:
        Skip: the attention kernel is unknown, or the framework has no such switch or release.
    """
    entry = entry_of(row) or filled.of("framework", UNKNOWN)
    if assumed_date(row):
        filled.of("software_date", None)
    base = _released(row, load_framework(entry["profile"]))
    base = with_settings(base, {name: as_word(setting) for name, setting in entry.get("switches", {}).items()})
    base = _switched(row, base)
    changes = _changes(entry) | dict(facts.software)
    stated = row["attention"].lower()
    if stated and stated not in ATTENTION_KERNELS:
        raise Skip(f"unknown attention kernel {stated}")
    # Notes name the version of a kernel if the column names only its kind.
    attention = facts.attention or stated
    if attention == "flash":
        attention = entry.get("flash", attention)
    changes |= {"attention": attention} if attention else {}
    if facts.fused_norm:
        changes["eager"] = tuple(name for name in changes.get("eager", base.eager) if not name.endswith("norm"))
    changes |= {"bucket_bytes": facts.bucket_bytes} if facts.bucket_bytes is not None else {}
    if "" < software_date(row) < EARLY_STOP_SINCE:
        changes["stops_recompute"] = False
    return replace(base, **changes)


def _released(row: TableRow, profile: FrameworkProfile) -> FrameworkProfile:
    """Return a profile as of the row's release, if any; dates and commits are not releases."""
    number = release_in(row["software_version"] or row["framework"])
    return of_release(profile, number) if number else profile


def _switched(row: TableRow, profile: FrameworkProfile) -> FrameworkProfile:
    """Return a profile with the switches stated by the row or its publication."""
    text = told_of_software(row)
    switches = available(profile)
    written = parse_switches([one.data["set"] for one in table("sources", "switches") if one.pattern.search(text)])
    profile = with_settings(profile, {name: setting for name, setting in written.items() if name in switches})
    if not row["switches"]:
        return profile
    try:
        named = parse_switches([_spelled(row["switches"])])
        return switched(profile, _without(named, available(profile)) | named)
    except RequestError as error:
        raise Skip(f"no such switches: {error}") from None


_ALIASES = dict.fromkeys(
    ("mc2", "use-ascend-mc2", "asynctp", "async-tp", "enable-async-tensor-parallel", "ub-tp-comm-overlap"),
    "tp-comm-overlap",
)
"""Framework names of catalogue switches."""


def _spelled(text: str) -> str:
    """Return switches as ``parse_switches`` reads them, from the flags of a command line.

    >>> _spelled("--overlap_grad_reduce=False; compile"), _spelled("AsyncTP")
    ('overlap-grad-reduce=off,compile', 'tp-comm-overlap')
    """
    spelled = []
    for word in re.split(r"[,;]", text):
        name, equals, setting = word.strip().partition("=")
        setting = {"false": "off", "true": "on", "0": "off", "1": "on"}.get(setting.strip().lower(), setting)
        known = name.strip().lstrip("-").replace("_", "-")
        spelled.append(_ALIASES.get(known.lower(), known) + equals + setting)
    return ",".join(spelled)


def _without(named: Mapping[str, str], switches: Mapping[str, str]) -> dict[str, str]:
    """Return further switches that must be off, because they require a switch that a row turns off."""
    return {
        name: "off"
        for name, setting in switches.items()
        if name not in named and "off" in all_switches()[name].values
        for other, needed in all_switches()[name].required(setting).items()
        if other in named and named[other] not in needed
    }
