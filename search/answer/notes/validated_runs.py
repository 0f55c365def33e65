"""How well predictions met measured runs of the same device, framework and kind of model, in figures that travel along.

``data/checked.json`` is written by ``benchmarks/accuracy/by_device.py`` from runs that others published.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import Row
from forerun.search.measured.certainty import busy_share, certainty_of, unchecked_gain
from forerun.search.measured.certainty.parts import special_parts
from forerun.search.measured.certainty.unchecked import REALISED
from forerun.search.request.setting import Setting
from forerun.spaces.documents.package_data import package_text
from forerun.spaces.strategies import Context

LEANING = 0.5
"""A median of signed errors of this share of the median error is said: predictions lean one way."""
FAR = 2
"""A search over this many times the devices of the largest measured run says how many those were."""


@cache
def figures() -> Mapping[str, Any]:
    """Return the figures with the date and the commit they are of."""
    text = package_text("forerun.search.answer.notes", "data", "checked.json")
    document: Mapping[str, Any] = json.loads(text)
    return document


def entry_of(device: str | None, framework: str | None, experts: bool | None = None) -> Mapping[str, Any] | None:
    """Return the figures of a device, a framework and models with or without experts (None: any of them); None where
    too little was measured."""
    wanted = {"device": device, "framework": framework, "experts": experts}
    entries: list[Mapping[str, Any]] = figures()["entries"]
    return next((entry for entry in entries if wanted.items() <= entry.items()), None)


def checked_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return as one note how well predictions like the first row's met measured runs; none where runs of the user have
    calibrated them."""
    context, row = setting.context, rows[0]
    if context.correction is not None:
        return ()
    device, framework, experts = context.cluster.device.name, context.framework.name, context.moe
    kind = "models with experts" if experts else "dense models"
    alike = entry_of(device, framework, experts)
    if alike is not None:
        known = (
            f"validated on {_runs(alike)} of {kind} on {device} with {framework}{_error(alike)}{_far(alike, row.gpus)}"
            f"{_without(alike, context)}"
        )
        return (f"{known}; {interval_text(context, row)}",)
    same_device = entry_of(device, None, experts)
    if same_device is not None:
        others = f"{_runs(same_device)} of {kind} there with other frameworks{_error(same_device)}"
        others += f"{_far(same_device, row.gpus)}{_without(same_device, context)}"
        known = f"not validated with {framework} on {device}; {others}"
        return (f"{known}; {interval_text(context, row)}",)
    others_there = entry_of(device, None)
    known = (
        f" ({_runs(others_there)} of others{_error(others_there)})"
        if others_there
        else ", known from data sheets and benchmarks"
    )
    alike = entry_of(None, framework, experts) or entry_of(None, None, experts)
    assert alike is not None, "there are runs of both kinds"
    by = f" with {alike['framework']}" if alike["framework"] else ""
    known = f"no measured run of {kind} on {device}{known}; on other devices {_runs(alike)}{by}{_error(alike)}"
    known += _without(alike, context)
    return (f"{known}; {interval_text(context, row)}",)


def interval_text(context: Context, row: Row) -> str:
    """Return between which shares of a row's step four of five measured steps are expected."""
    parts = {part: np.array([seconds]) for part, seconds in row.breakdown_s.items()}
    gain = unchecked_gain(context, [row.strategy])
    sure = certainty_of(context, [row.strategy], busy_share(parts)).with_unchecked(gain)
    low, high = sure.low[0], sure.high[0]
    told = f"80% of measured steps are expected within {low:.2f} to {high:.2f} times the prediction"
    if not gain[0]:
        return told
    return f"{told}; moe-overlap saves {gain[0] / (1 + gain[0]):.0%}, of which the one measured pair had {REALISED}"


def _runs(entry: Mapping[str, Any]) -> str:
    return f"{entry['rows']:,} measured run{'s' if entry['rows'] != 1 else ''}"


def _error(entry: Mapping[str, Any]) -> str:
    """Return the median error, and which way predictions were off where they lean one way by a fair part of it."""
    median, bias = entry["median_pct"], entry["bias_pct"]
    if abs(bias) < LEANING * median:
        return f", median error {median:.1f}%"
    return f", median error {median:.1f}%, bias {bias:+.1f}% (predicted too {'fast' if bias < 0 else 'slow'})"


def _far(entry: Mapping[str, Any], gpus: int) -> str:
    return f"; the largest had {entry['gpus']:,} GPUs" if gpus > FAR * entry["gpus"] else ""


def _without(entry: Mapping[str, Any], context: Context) -> str:
    """Return what the model has and no measured run had."""
    lacking = [part for part in special_parts(context.model) if part not in entry["special"]]
    return f"; none with {' or '.join(lacking)}" if lacking else ""
