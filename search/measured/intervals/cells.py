"""Errors of predictions of published runs: cells of runs with equal kind, scale and computing share.

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
"""Bytes added to measured and predicted peaks before their ratio: errors of peaks have a constant part (workspaces of
libraries, masks, copies in tests)."""
LEAST_SHARE = 0.1
"""Least lower bound of a peak's interval, as a share of the prediction."""
GATHERED = 3
"""ZeRO stage in which parameters are gathered before use."""
BITS = {"fp8": 8, "mxfp8": 8, "fp4": 4, "nvfp4": 4}
"""Width of products by precision, if below 16 bits."""
NEW_TABLE = -1
"""Table number of predictions, which belong to no published table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClass:
    """Categorical properties of a prediction.

    ``generation``: first word of the device's architecture; ``constants``: origin of the device's compute constants
    ("own", "lent" by a device of its architecture, "foreign"); ``framework``: name of the profile or of its ``like``;
    ``experts``: the model has experts; ``bits``: width of matrix products; ``by_layer``: parameters are gathered layer
    by layer, as FSDP and ZeRO-3 do; ``special``: parts of the model besides attention and MLP; ``guessed``: the
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
        """Whether the run has any mechanism besides 16-bit products of a dense model with ungathered parameters."""
        return self.experts or self.bits < 16 or self.by_layer or bool(self.special)


def kind_of(context: Context, zero: int = 0, *, guessed: bool = False) -> RunClass:
    """Return the kind of predictions in a context for strategies with ZeRO stage ``zero``."""
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
    """P predictions, or cells of predictions, as inputs of the covariance of errors.

    ``gpus``: base-2 logarithm of the devices; ``busy``: computing share of the predicted step; ``tables``: numbers of
    published tables. For peaks: ``reading`` ("allocated", "reserved" or "device"; empty for steps) and ``size`` (base-2
    logarithm of the predicted bytes; 0 for steps).
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
    """Errors of C cells: ``log_ratio`` is the median logarithm of measured over predicted, ``rows`` the number of runs,
    and ``missed`` the mean root of the error of the runs with their group left out, over the root expected from the
    variances.
    """

    points: Points
    log_ratio: Floats
    rows: Floats
    missed: Floats


def peak_ratio(measured_bytes: float, predicted_bytes: float) -> float:
    """Return the ratio whose logarithm is the error of a peak."""
    return (measured_bytes + UNMODELLED_BYTES) / (predicted_bytes + UNMODELLED_BYTES)


def over_peak(ratio: Floats, peak_bytes: Floats) -> Floats:
    """Return ratios of ``peak_ratio`` as shares of the predicted peaks, any shape."""
    share = (ratio * (peak_bytes + UNMODELLED_BYTES) - UNMODELLED_BYTES) / peak_bytes
    return np.maximum(share, LEAST_SHARE)


@cache
def residuals(quantity: str) -> Residuals:
    """Return the errors of "step" or "memory"."""
    document = json.loads(package_text("forerun.search.measured.intervals", "data", "residuals.json"))
    return from_cells(document["kinds"], document[quantity])


CELL = ("kind", "table", "gpus", "busy", "reading", "peak_bytes", "rows", "log_ratio", "missed")
"""Values of a cell as written, in this order; ``kind`` is an index of the list of kinds."""


def from_cells(kinds: Sequence[Mapping[str, Any]], cells: Sequence[Sequence[Any]]) -> Residuals:
    """Return stored cells as arrays."""
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
    """Return the stored form of kinds and cells; the inverse of ``from_cells``."""
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
