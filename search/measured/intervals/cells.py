"""Errors of predictions of published runs: cells of runs that share kind, scale and computing share.

``data/residuals.json`` is written by ``benchmarks/accuracy/residuals.py``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.search.measured.intervals.parts import special_parts
from forerun.simulator.costs.efficiency import constants_from
from forerun.spaces.documents.package_data import package_text
from forerun.spaces.strategies import Context

Floats = NDArray[np.float64]
Words = NDArray[np.str_]

UNMODELLED_BYTES = float(1 << 30)
"""Added to measured and predicted peaks before their ratio is taken: errors of peaks have a part that does not grow
with them (workspaces of libraries, masks, copies of a test's own)."""
LEAST_SHARE = 0.1
"""No interval of a peak begins lower than at this share of the prediction."""
GATHERED = 3
"""Stage of sharding in which parameters are gathered where they are used."""
BITS = {"fp8": 8, "mxfp8": 8, "fp4": 4, "nvfp4": 4}
"""Width of products by precision, where it is below 16."""
NEW_TABLE = -1
"""Table of a prediction: no published one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClass:
    """Properties that predictions share besides numbers.

    ``generation``: first word of the device's architecture; ``constants``: whose compute constants the device has
    ("own", "lent" by one of its architecture, "foreign"); ``framework``: a profile's name, or that of the one it is
    like; ``experts``: the model has some; ``bits``: width of matrix products; ``by_layer``: parameters are gathered
    layer by layer, as FSDP and ZeRO-3 do; ``special``: parts of the model besides attention and MLP; ``guessed``: the
    recompute was filled in.
    """

    device: str
    vendor: str
    generation: str
    constants: str
    framework: str
    experts: bool = False
    bits: int = 16
    by_layer: bool = False
    special: str = ""
    guessed: bool = False

    @property
    def mechanism(self) -> str:
        """Mechanisms of the run besides 16-bit products of a dense model, as one text."""
        return f"{self.experts:d} {self.bits} {self.by_layer:d} {self.special}"

    @property
    def unusual(self) -> bool:
        """Whether it is more than 16-bit products of a dense model whose parameters stay where they are."""
        return self.experts or self.bits < 16 or self.by_layer or bool(self.special)


def kind_of(context: Context, zero: int = 0, *, guessed: bool = False) -> RunClass:
    """Return the kind of predictions made in a context for strategies with stage ``zero`` of sharding."""
    device = context.cluster.device
    return RunClass(
        device=device.fitted_name,
        vendor=device.vendor,
        generation=device.architecture.split()[0],
        constants="own" if device.measured is not None else constants_from(device),
        framework=(context.framework.lineage or (context.framework.name,))[-1],
        experts=context.moe,
        bits=BITS.get(context.workload.precision, 16),
        by_layer=context.framework.layer_units or zero == GATHERED,
        special=", ".join(special_parts(context.model)),
        guessed=guessed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """P predictions, or cells of them, as the covariance of their errors sees them.

    ``gpus``: base-2 logarithm of the devices; ``busy``: share of the predicted step that computes; ``tables``: numbers
    of published tables. Of peaks: ``reading`` ("allocated", "reserved" or "device"; empty for steps) and ``size``
    (base-2 logarithm of the predicted bytes; 0 for steps).
    """

    kinds: tuple[RunClass, ...]
    gpus: Floats
    busy: Floats
    tables: NDArray[np.int64]
    reading: Words
    size: Floats

    def words(self, name: str) -> Words:
        """Return one attribute of every kind, shape P."""
        return np.array([str(getattr(kind, name)) for kind in self.kinds], dtype=np.str_)

    def flags(self, name: str) -> Floats:
        """Return one yes-or-no attribute of every kind as 1 or 0, shape P."""
        return np.array([float(getattr(kind, name)) for kind in self.kinds])


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """Errors of C cells: ``log_ratio`` is the median logarithm of measured over predicted, ``rows`` the runs, and
    ``missed`` the mean error of the cell's runs with their group left out, over what the variances expected (1: as
    expected)."""

    points: Points
    log_ratio: Floats
    rows: Floats
    missed: Floats


def peak_ratio(measured_bytes: float, predicted_bytes: float) -> float:
    """Return the ratio whose logarithm is the error of a peak."""
    return (measured_bytes + UNMODELLED_BYTES) / (predicted_bytes + UNMODELLED_BYTES)


def over_peak(ratio: Floats, peak_bytes: Floats) -> Floats:
    """Return such ratios as shares of the predicted peaks, any shape."""
    share = (ratio * (peak_bytes + UNMODELLED_BYTES) - UNMODELLED_BYTES) / peak_bytes
    return np.maximum(share, LEAST_SHARE)


@cache
def residuals(quantity: str) -> Residuals:
    """Return the errors of "step" or "memory"."""
    document = json.loads(package_text("forerun.search.measured.intervals", "data", "residuals.json"))
    return from_cells(document["kinds"], document[quantity])


CELL = ("kind", "table", "gpus", "busy", "reading", "peak_bytes", "rows", "log_ratio", "missed")
"""Values of a cell as written, in this order; ``kind`` is a place in the list of kinds."""


def from_cells(kinds: Sequence[Mapping[str, Any]], cells: Sequence[Sequence[Any]]) -> Residuals:
    """Return cells as they are written as arrays."""
    known = [RunClass(**kind) for kind in kinds]
    columns = dict(zip(CELL, zip(*cells, strict=True), strict=True))
    points = Points(
        kinds=tuple(known[place] for place in columns["kind"]),
        gpus=np.log2(np.array(columns["gpus"], dtype=float)),
        busy=np.array(columns["busy"], dtype=float),
        tables=np.array(columns["table"], dtype=np.int64),
        reading=np.array(columns["reading"], dtype=np.str_),
        size=np.log2(np.array(columns["peak_bytes"], dtype=float)),
    )
    rows, log_ratio, missed = (np.array(columns[name], dtype=float) for name in CELL[-3:])
    return Residuals(points=points, log_ratio=log_ratio, rows=rows, missed=missed)


def to_cells(known: Residuals) -> tuple[list[dict[str, Any]], list[list[Any]]]:
    """Return the kinds and the cells as they are written; the reverse of ``from_cells``."""
    kinds = list(dict.fromkeys(known.points.kinds))
    place, points = {kind: number for number, kind in enumerate(kinds)}, known.points
    cells = [
        [
            place[kind],
            int(points.tables[row]),
            round(2 ** float(points.gpus[row])),
            round(float(points.busy[row]), 2),
            str(points.reading[row]),
            float(f"{2 ** float(points.size[row]):.2e}"),
            int(known.rows[row]),
            round(float(known.log_ratio[row]), 3),
            round(float(known.missed[row]), 2),
        ]
        for row, kind in enumerate(points.kinds)
    ]
    defaults = {one.name: one.default for one in fields(RunClass)}
    written = [{name: value for name, value in asdict(kind).items() if value != defaults[name]} for kind in kinds]
    return written, cells
