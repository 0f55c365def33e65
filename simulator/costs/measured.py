"""Measured seconds of a machine's operators, completed by the fitted surfaces.

A measured operator is stored as the ratio of its time to the fitted surface. At a measured shape, the surface times the
ratio is the measurement (and a calibration of the surface also changes it). At other shapes the ratio is that of
measured neighbours (mean of the logarithms, weighted by the inverse square of the distance in doublings; Shepard, A
two-dimensional interpolation function for irregularly-spaced data, 1968); far from all measurements it is their mean
ratio, so the surface keeps its form and takes the level of the machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.clusters.measurements import Floats, Surface
from forerun.spaces.errors import RequestError

_SAME = 1e-6
"""Squared distance, in doublings, at which two shapes are equal."""
_NEAR = 1e-3
"""Added to squared distances, so that weights stay finite."""
MOST_APART = 1e6
"""Ratio of measured and modelled seconds of an operator, in either direction, beyond which a figure is an error."""
_AT_ONCE = 1 << 20
"""Pairs of shapes compared at once."""


@dataclass(frozen=True, slots=True)
class Samples:
    """M measurements of one operator, with D numbers per shape."""

    shapes: Floats
    """Shape [M, D]."""
    seconds: Floats
    """Their measured seconds, shape M."""
    fitted: Floats
    """Their seconds by the fitted surface, shape M."""

    @property
    def log_ratio(self) -> Floats:
        """Logarithm of measured over fitted seconds."""
        return np.asarray(np.log(self.seconds / self.fitted))


def _check(name: str, samples: Samples) -> None:
    """Refuse implausible seconds.

    Raises
    ------
    RequestError
        An operator took over ``MOST_APART`` times the seconds of the device's surface, or as much less.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        reasonable = abs(samples.log_ratio) <= np.log(MOST_APART)
    if not reasonable.all():
        row = int(np.argmin(reasonable))
        shape = tuple(samples.shapes[row].tolist())
        raise RequestError(
            f"{name} of shape {shape} is measured at {samples.seconds[row]:.3g} s where the device would take "
            f"{samples.fitted[row]:.3g} s, more than {MOST_APART:.0e} times apart; measure it again"
        )


class MeasuredCosts:
    """Measured operators by name; implements ``Measurements``.

    ``weights``: weight of each number of a shape in distances (None: all equal). An operator without measurements uses
    the mean ratio of its family (the first word of its name), or the unchanged surface for an unmeasured family.
    """

    def __init__(self, samples: Mapping[str, Samples], weights: tuple[float, ...] | None = None) -> None:
        self.samples = dict(samples)
        for name, one in self.samples.items():
            _check(name, one)
        self._weights = None if weights is None else np.array(weights)
        self._known = {name: (self._place(one.shapes), one.log_ratio) for name, one in self.samples.items()}
        families: dict[str, list[Floats]] = {}
        for name, one in self.samples.items():
            families.setdefault(name.split()[0], []).append(one.log_ratio)
        self._family = {name: float(np.mean(np.concatenate(ratios))) for name, ratios in families.items()}

    def seconds(self, name: str, shape: tuple[Floats, ...], surface: Surface) -> Floats:
        """Return seconds at every shape (see ``Measurements``)."""
        arrays = np.broadcast_arrays(*shape)
        fitted = np.asarray(surface(*arrays), dtype=np.float64)
        if name not in self._known:
            return np.asarray(fitted * np.exp(self._family.get(name.split()[0], 0.0)))
        where, (known, ratios) = self._place(_flat(arrays)), self._known[name]
        log_ratio = np.empty(len(where))
        step = max(1, _AT_ONCE // len(known))
        for start in range(0, len(where), step):
            rows = slice(start, start + step)
            square = ((where[rows, None, :] - known[None, :, :]) ** 2).sum(axis=2)
            nearest = square.argmin(axis=1)
            weight = 1.0 / (square + _NEAR)
            between = (weight * ratios).sum(axis=1) / weight.sum(axis=1)
            log_ratio[rows] = np.where(square.min(axis=1) < _SAME, ratios[nearest], between)
        return np.asarray(fitted * np.exp(log_ratio).reshape(fitted.shape))

    def knows(self, name: str, shapes: Floats) -> NDArray[np.bool_]:
        """Mark the shapes [N, D] that were measured."""
        if name not in self._known:
            return np.zeros(len(shapes), dtype=bool)
        square = ((self._place(shapes)[:, None, :] - self._known[name][0][None, :, :]) ** 2).sum(axis=2)
        return np.asarray(square.min(axis=1) < _SAME)

    def _place(self, shapes: Floats) -> Floats:
        """Return shapes in doublings, weighted."""
        logs = np.log2(np.maximum(shapes, 1e-9))
        return np.asarray(logs if self._weights is None else logs * self._weights)


@dataclass(slots=True)
class QueryRecorder:
    """Recorder of all queried shapes, with answers from the fitted surfaces; implements ``Measurements``.

    ``asked``: name of the operator -> shape -> fitted seconds.
    """

    asked: dict[str, dict[tuple[float, ...], float]] = field(default_factory=dict)

    def seconds(self, name: str, shape: tuple[Floats, ...], surface: Surface) -> Floats:
        """Return the fitted seconds, and record shapes of non-zero duration."""
        arrays = np.broadcast_arrays(*shape)
        fitted = np.asarray(surface(*arrays), dtype=np.float64)
        kept = self.asked.setdefault(name, {})
        for values, seconds in zip(_flat(arrays).tolist(), np.ravel(fitted).tolist(), strict=True):
            if seconds > 0:
                kept[tuple(values)] = seconds
        return fitted


def _flat(arrays: tuple[Floats, ...] | list[Floats]) -> Floats:
    return np.stack([np.ravel(values) for values in arrays], axis=1)
