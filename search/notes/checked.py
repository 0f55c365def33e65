"""How well predictions met measured runs of the same device, framework and kind of model, in figures that travel along.

``data/checked.json`` is written by ``benchmarks/accuracy/by_device.py`` from runs that others published.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from forerun.spaces.strategies import Context

FAR = 2
"""A search over this many times the devices of the largest measured run says how many those were."""


@cache
def figures() -> Mapping[str, Any]:
    """Return the figures with the date and the commit they are of."""
    text = resources.files("forerun.search.notes").joinpath("data", "checked.json").read_text(encoding="utf-8")
    document: Mapping[str, Any] = json.loads(text)
    return document


def entry_of(device: str | None, framework: str | None, experts: bool | None = None) -> Mapping[str, Any] | None:
    """Return the figures of a device, a framework and models with or without experts (None: any of them); None where
    too little was measured."""
    wanted = {"device": device, "framework": framework, "experts": experts}
    entries: list[Mapping[str, Any]] = figures()["entries"]
    return next((entry for entry in entries if wanted.items() <= entry.items()), None)


def checked_note(context: Context, gpus: int) -> tuple[str, ...]:
    """Return what is known of predictions like those of a context on ``gpus`` devices, as one note; none where
    measured runs of the user's own have calibrated them.
    """
    if context.correction is not None:
        return ()
    device, framework, experts = context.cluster.device.name, context.framework.name, context.moe
    kind = "models with experts" if experts else "dense models"
    alike = entry_of(device, framework, experts)
    if alike is not None:
        return (f"checked on {_runs(alike)} of {kind} on {device} with {framework}{_error(alike)}{_far(alike, gpus)}",)
    same_device = entry_of(device, None, experts)
    if same_device is not None:
        return (
            f"not checked with {framework} on {device}; {_runs(same_device)} of {kind} there with other frameworks"
            f"{_error(same_device)}{_far(same_device, gpus)}",
        )
    others = entry_of(device, None)
    known = f" ({_runs(others)} of others{_error(others)})" if others else ", known from data sheets and benchmarks"
    alike = entry_of(None, framework, experts) or entry_of(None, None, experts)
    assert alike is not None, "there are runs of both kinds"
    by = f" with {alike['framework']}" if alike["framework"] else ""
    return (f"no measured run of {kind} on {device}{known}; on other devices {_runs(alike)}{by}{_error(alike)}",)


def _runs(entry: Mapping[str, Any]) -> str:
    return f"{entry['rows']:,} measured runs"


def _error(entry: Mapping[str, Any]) -> str:
    return f", median error {entry['median_pct']:.1f}%"


def _far(entry: Mapping[str, Any], gpus: int) -> str:
    return f"; the largest had {entry['gpus']:,} GPUs" if gpus > FAR * entry["gpus"] else ""
