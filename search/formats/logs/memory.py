"""Peak memory in the lines of a log, by kind."""

import re
from collections.abc import Iterable
from typing import Literal

from forerun.search.formats.logs.lines import number_of

MemoryKind = Literal["allocated", "reserved"]
_MACROS = {
    "NUMBER": r"(?P<value>[0-9][0-9,]*(?:\.[0-9]*)?)",
    "UNIT": r"(?P<unit>[GM]i?B)",
    "MOST": r"(?i:max|peak)[ _/]*(?i:gpu |cuda )?",
    "IS": r"['\"]?\s*[:=]\s*",
}
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "MB": 2.0**20, "GB": 2.0**30}
"""Bytes by unit: training software counts gigabytes of 2^30 bytes; nanotron alone writes numbers of bytes in short."""
_MARKS = ("max", "peak", "memory:", "reserved mem", "active mem", "total memory size")
"""Texts of which every matching line contains one; other lines are not searched."""


def _pattern(text: str) -> re.Pattern[str]:
    for name, pattern in _MACROS.items():
        text = text.replace(name, pattern)
    return re.compile(text)


_RESERVED = (
    _pattern(r"\bloss:.*?\bmemory:\s*NUMBERUNIT"),  # torchtitan
    _pattern(r"memory \((?P<unit>MB)\).*?\bmax reserved: NUMBER"),  # Megatron-LM
    _pattern(r"cuda_max_memory_reserved: NUMBER(?P<unit>[KMG]?)"),  # nanotron
    _pattern(r"\bMax_CA NUMBER UNIT"),  # DeepSpeed
    _pattern(r"GPU reserved mem \(UNIT\)ISNUMBER"),  # OLMo-core
    _pattern(r"MOST(?i:mem(?:ory)?[ _]*)?(?i:reserved)\s*\(UNIT\)ISNUMBER"),
)
_ALLOCATED = (
    _pattern(r"memory \((?P<unit>MB)\).*?\bmax allocated: NUMBER"),
    _pattern(r"MaxMemAllocated=NUMBERUNIT"),
    _pattern(r"GPU active mem \(UNIT\)ISNUMBER"),
    _pattern(r"Total memory size: NUMBER UNIT"),  # MaxText: XLA's plan
    _pattern(r"MOST(?i:mem(?:ory)?|allocated)(?i:[ _]*(?:allocated|usage|used))?\s*\(UNIT\)ISNUMBER"),
    _pattern(r"MOST(?i:mem(?:ory)?|allocated)(?i:[ _]*(?:allocated|usage|used))?ISNUMBER\s*UNIT"),
    _pattern(r"\bpeak_memory_usage: (?P<value>[0-9]{8,})(?P<unit>)\b"),  # NeMo, in bytes
)


def peak_of(lines: Iterable[str]) -> tuple[float, MemoryKind] | None:
    """Return the largest peak of all ranks in bytes, and its kind; reserved memory if the log has both."""
    reserved, allocated = 0.0, 0.0
    for line in lines:
        lower = line.lower()
        if not any(mark in lower for mark in _MARKS):
            continue
        reserved = max(reserved, _largest(_RESERVED, line))
        allocated = max(allocated, _largest(_ALLOCATED, line))
    if reserved:
        return reserved, "reserved"
    return (allocated, "allocated") if allocated else None


def _largest(patterns: Iterable[re.Pattern[str]], line: str) -> float:
    """Return the largest number of bytes that patterns find in a line; 0: none."""
    matches = [match for pattern in patterns if (match := pattern.search(line))]
    return max(((number_of(m["value"]) or 0.0) * _UNITS[m["unit"].replace("i", "")] for m in matches), default=0.0)
