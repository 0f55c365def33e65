"""What is left over of predictions of published runs: cells of runs that are alike, each with quantiles of measured
over predicted. ``data/residuals.json`` is written by ``benchmarks/accuracy/residuals.py``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.documents.package_data import package_text
from forerun.spaces.strategies import Context

Floats = NDArray[np.float64]

UNMODELLED_BYTES = float(1 << 30)
"""Errors of peaks have a part that does not grow with them (workspaces of libraries, masks, copies of a test's
own): ratios are of what is measured and predicted with this much on either side."""
LEAST_SHARE = 0.1
"""No interval of a peak begins lower than at this share of the prediction."""
GATHERED = 3
"""Stage of sharding in which parameters are gathered where they are used."""
NARROW = ("fp8", "mxfp8", "fp4", "nvfp4")
"""Precisions whose products are narrower than 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClass:
    """What predictions are alike in besides numbers.

    ``device``, ``generation`` (first word of its architecture), ``framework`` (a profile's name, or that of the one it
    is like), ``by_layer``: parameters are gathered layer by layer, as FSDP and ZeRO-3 do; ``experts``: the model has
    some; ``narrow``: products of fewer than 16 bits.
    """

    device: str
    generation: str
    framework: str
    by_layer: bool
    experts: bool
    narrow: bool


def kind_of(context: Context, zero: int = 0) -> RunClass:
    """Return the kind of predictions that are made in a context of strategies with some stage of sharding."""
    device = context.cluster.device
    return RunClass(
        device=device.name,
        generation=device.architecture.split()[0],
        framework=(context.framework.lineage or (context.framework.name,))[-1],
        by_layer=context.framework.layer_units or zero == GATHERED,
        experts=context.moe,
        narrow=context.workload.precision in NARROW,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Quantiles of measured over predicted, P of them, each with the cell it is of.

    ``log_ratio`` (P), ``weight`` (P): how many runs each stands for, less the more their table has; ``kinds``: one for
    each of P; ``gpus`` (P); ``busy`` (P): share of the predicted step that computes;
    ``tables`` (P): the number of their table. Of peaks alone: ``readings`` (P): how they were read; ``peak_bytes``
    (P), as predicted.
    """

    log_ratio: Floats
    weight: Floats
    kinds: tuple[RunClass, ...]
    gpus: Floats
    busy: Floats
    tables: NDArray[np.int64]
    readings: NDArray[np.str_] = field(default_factory=lambda: np.zeros(0, dtype=np.str_))
    peak_bytes: Floats = field(default_factory=lambda: np.zeros(0))


def peak_ratio(measured_bytes: float, predicted_bytes: float) -> float:
    """Return what residuals of peaks are the logarithms of."""
    return (measured_bytes + UNMODELLED_BYTES) / (predicted_bytes + UNMODELLED_BYTES)


def over_peak(ratio: Floats, peak_bytes: Floats) -> Floats:
    """Return such ratios as shares of the predicted peaks, any shape."""
    share = (ratio * (peak_bytes + UNMODELLED_BYTES) - UNMODELLED_BYTES) / peak_bytes
    return np.maximum(share, LEAST_SHARE)


@cache
def residuals(quantity: str) -> Residuals:
    """Return what is left over of "step" or "memory"."""
    text = package_text("forerun.search.measured.certainty", "data", "residuals.json")
    return joined(json.loads(text)["cells"], quantity)


def joined(cells: Sequence[Mapping[str, Any]], quantity: str) -> Residuals:
    """Return the quantiles of all cells that have any of ``quantity``, one behind the other."""
    kept = [(cell, cell[quantity]) for cell in cells if quantity in cell]
    rows: dict[int, int] = {}
    for cell, its in kept:
        rows[cell["table"]] = rows.get(cell["table"], 0) + its["rows"]
    counts = np.array([len(its["log_ratio"]) for _, its in kept])
    each = [its["rows"] / len(its["log_ratio"]) / rows[cell["table"]] ** 0.5 for cell, its in kept]
    kinds = [RunClass(**cell["kind"]) for cell, _ in kept]
    return Residuals(
        log_ratio=np.concatenate([its["log_ratio"] for _, its in kept]),
        weight=np.repeat(each, counts),
        kinds=tuple(kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)),
        gpus=np.repeat([float(cell["gpus"]) for cell, _ in kept], counts),
        busy=np.repeat([float(cell["busy"]) for cell, _ in kept], counts),
        tables=np.repeat([int(cell["table"]) for cell, _ in kept], counts),
        readings=np.repeat([its.get("reading", "") for _, its in kept], counts),
        peak_bytes=np.repeat([its.get("peak_bytes", 0.0) for _, its in kept], counts),
    )
