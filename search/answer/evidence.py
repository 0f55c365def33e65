"""The published runs nearest to a prediction, and the sentence that names them.

``data/checked.json`` is written by ``benchmarks/accuracy/residuals.py``.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from forerun.search.board.evidence import DEVICE, FRAMEWORK, FRAMEWORK_THERE, GROUPS, KIND, LEVELS, NOTHING, NearestRuns
from forerun.search.measured.intervals.kriging import group_contexts
from forerun.spaces.documents.package_data import package_text
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.strategies import Context

UNDESCRIBED = "unknown"
"""Name in ``validate`` for frameworks without a profile."""


@cache
def figures() -> Mapping[str, Any]:
    """Return the figures with their date and commit."""
    document: Mapping[str, Any] = json.loads(package_text("forerun.search.answer", "data", "checked.json"))
    return document


def entry_of(device: str | None, framework: str | None, experts: bool | None = None) -> Mapping[str, Any] | None:
    """Return the figures of a device, a framework and models with or without experts (None: any of them).

    None without measured runs.
    """
    wanted = {"device": device, "framework": framework, "experts": experts}
    entries: list[Mapping[str, Any]] = figures()["entries"]
    return next((entry for entry in entries if wanted.items() <= entry.items()), None)


def measured_framework(profile: FrameworkProfile) -> str:
    """Return the framework whose measured runs support a profile.

    It is the nearest one of its lineage with runs, else the root.
    """
    names = profile.lineage or (profile.name,)
    return next((name for name in names if entry_of(None, name)), names[-1])


def evidence_of(context: Context) -> NearestRuns:
    """Return the nearest published runs of an uncalibrated context.

    For groups of nodes they are those of the group with the weakest evidence.
    """
    if context.cluster.groups:
        weakest = max(map(evidence_of, group_contexts(context)), key=lambda one: LEVELS.index(one.level))
        return replace(weakest, level=GROUPS, text=f"no measured run on groups of nodes that differ; {weakest.text}")
    device, experts = context.cluster.device.name, context.moe
    framework = measured_framework(context.framework)
    if framework == UNDESCRIBED:
        framework = "a framework that the catalogue does not describe"
    kind, other = ("models with experts", "dense models") if experts else ("dense models", "models with experts")
    if entry := entry_of(device, framework, experts):
        precision = context.workload.precision
        lacking = "" if precision in entry["precisions"] else f", none in {precision}"
        lacking += "" if entry["memory_rows"] else ", none with a measured peak of memory"
        return _evidence(KIND, entry, f"{counted(entry)} of {kind} on {device} with {framework}{lacking}")
    if entry := entry_of(device, framework):
        missing = f"no measured run of {kind} on {device} with {framework}"
        return _evidence(FRAMEWORK_THERE, entry, f"{missing}; {counted(entry)} of {other} there")
    if entry := entry_of(device, None):
        missing = f"no measured run on {device} with {framework}"
        return _evidence(
            DEVICE, entry, f"{missing}; {counted(entry)} there with other frameworks{_elsewhere(framework)}"
        )
    if entry := entry_of(None, framework):
        return _evidence(FRAMEWORK, entry, f"no measured run on {device}; {counted(entry)} with {framework} elsewhere")
    entry = entry_of(None, None)
    assert entry is not None, "there are measured runs"
    return _evidence(NOTHING, entry, f"no measured run on {device} or with {framework}")


def _elsewhere(framework: str) -> str:
    """Return the number of measured runs of a framework on other devices and the most frequent device, as a clause."""
    rows = {
        entry["device"]: entry["rows"]
        for entry in figures()["entries"]
        if entry["framework"] == framework and entry["device"] and entry["experts"] is None
    }
    if not rows:
        return ""
    most = max(rows, key=rows.__getitem__)
    return f", {sum(rows.values()):,} with {framework} on other devices ({rows[most]:,} on {most})"


def _evidence(level: str, entry: Mapping[str, Any], text: str) -> NearestRuns:
    return NearestRuns(level=level, runs=0 if level == NOTHING else entry["rows"], text=text, figures=entry)


def counted(entry: Mapping[str, Any]) -> str:
    """Return the number of measured runs of an entry as text."""
    return f"{entry['rows']:,} measured run{'s' if entry['rows'] != 1 else ''}"
