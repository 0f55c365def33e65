"""Covariance of prediction errors: the shared error of two runs, level by level.

The logarithm of measured over predicted is a sum of effects, each common to the runs of one device, vendor, framework,
framework on a device, mechanism, kind or table, plus an effect of similar scale within a table, and scatter.
``data/variances.yaml`` has the standard deviation of each; ``benchmarks/accuracy/variances.py`` fits them by leaving
out runs of a group, table, device, framework or mechanism.
"""

from dataclasses import dataclass, fields
from functools import cache

import numpy as np
from numpy.typing import NDArray

from forerun.search.measured.intervals.cells import NEW_TABLE, Floats, Points
from forerun.spaces.documents.package_data import package_yaml

DOUBLINGS = 2.0
"""Doublings of devices, or of a peak, over which the effect of similar scale falls e-fold."""
BUSY_REACH = 0.2
"""Computing share of the step over which this effect falls e-fold."""
WAITING_BELOW = 0.5
"""Computing share below which a step is bound by hosts and networks."""
LIKENESS_POWER = 4
"""Exponent of the common share of device, framework and mechanism of two runs, in the weights of scatter."""
USUAL_SHARE = 0.3
"""Effect of a mechanism or kind on 16-bit products of a dense model, relative to other runs."""
_LEAST_VARIANCE = 1e-6
"""Added to the variance of every cell, so that cells of equal points are invertible."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variances:
    """Standard deviations of the logarithm of measured over predicted, by level."""

    own_device: float
    """A device with its own compute constants."""
    lent_device: float
    """A device with the constants of another device."""
    vendor: float
    """A vendor whose devices use constants of another vendor."""
    framework: float
    """A framework."""
    framework_on_device: float
    """A framework on one device."""
    mechanism: float
    """Experts, narrow products, gathered parameters and special parts on a generation of devices (peaks: by kind of
    reading)."""
    kind: float
    """These mechanisms in one framework on one device."""
    table: float
    """A publication."""
    local: float
    """Runs of similar scale in a publication."""
    scatter: float
    """A single run."""
    guessed: float
    """Recompute filled in for a blank cell."""
    waiting: float
    """Runs of a framework on a device with a small computing share."""
    rough_waiting: float
    """Growth of ``local`` and ``scatter`` with the non-computing share of the step."""
    rough_experts: float
    """Growth of both for models with experts."""
    prior: float
    """Weight of the expected scatter against the scatter of similar runs, in runs."""


@cache
def variances(quantity: str) -> Variances:
    """Return the standard deviations for "step" or "memory"."""
    values = package_yaml("forerun.search.measured.intervals", "data", "variances.yaml")[quantity]
    return Variances(**{one.name: float(values[one.name]) for one in fields(Variances)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Relations:
    """Shared properties of points A (rows) and B (columns): masks A x B, and ``near`` (0 to 1) by scale."""

    device: Mask
    vendor: Mask
    framework: Mask
    mechanism: Mask
    table: Mask
    near: Floats


def relations(one: Points, other: Points) -> Relations:
    """Compare all points of one set with all of another."""

    def same(name: str) -> Mask:
        return np.equal.outer(one.words(name), other.words(name))

    tables = np.equal.outer(one.tables, other.tables) & (one.tables != NEW_TABLE)[:, None]
    family = (
        same("generation")
        if not one.reading.size or one.reading[0] == ""
        else np.equal.outer(one.reading, other.reading)
    )
    distance = np.abs(np.subtract.outer(one.gpus, other.gpus)) / DOUBLINGS
    distance += np.abs(np.subtract.outer(one.size, other.size)) / DOUBLINGS
    distance += np.abs(np.subtract.outer(one.busy, other.busy)) / BUSY_REACH
    return Relations(
        device=same("device"),
        vendor=same("vendor"),
        framework=same("framework"),
        mechanism=same("mechanism") & family,
        table=tables,
        near=np.exp(-distance),
    )


def likeness(shared: Relations) -> Floats:
    """Return the weights of the scatter of points B for points A (0 to 1, A x B), by shared properties and scale."""
    shares = np.asarray(shared.device, float) + shared.framework + shared.mechanism
    return np.asarray((shares / 3.0) ** LIKENESS_POWER * shared.near)


def covariance(one: Points, other: Points, shared: Relations, sizes: Variances) -> Floats:
    """Return the covariance of the errors of points A and B, shape A x B, without the scatter of single runs."""

    def both(loads: Floats, others: Floats, mask: Mask, size: float = 1.0) -> Floats:
        return np.where(mask, np.outer(loads, others) * size**2, 0.0)

    total = both(_device(one, sizes), _device(other, sizes), shared.device)
    total += both(_foreign(one), _foreign(other), shared.vendor, sizes.vendor)
    total += sizes.framework**2 * shared.framework
    on_device = shared.framework & shared.device
    total += sizes.framework_on_device**2 * on_device
    usual = _unusual(one), _unusual(other)
    total += both(*usual, shared.mechanism, sizes.mechanism)
    kind = shared.mechanism & on_device
    total += both(*usual, kind, sizes.kind)
    total += both(_waiting(one), _waiting(other), on_device, sizes.waiting)
    total += sizes.table**2 * shared.table
    total += both(one.flags("guessed"), other.flags("guessed"), shared.framework, sizes.guessed)
    total += both(roughness(one, sizes), roughness(other, sizes), shared.table & kind, sizes.local) * shared.near
    return total


def cell_covariance(points: Points, rows: Floats, shared: Relations, sizes: Variances) -> Floats:
    """Return the covariance of the median errors of C cells of ``rows`` runs each, shape C x C."""
    return covariance(points, points, shared, sizes) + np.diag(scatter(points, sizes) / rows + _LEAST_VARIANCE)


def variance(points: Points, sizes: Variances) -> Floats:
    """Return the variance of the errors of single runs outside published tables, scatter included, shape P."""
    usual, rough = _unusual(points), roughness(points, sizes)
    parts = (
        _device(points, sizes),
        _foreign(points) * sizes.vendor,
        np.full(len(usual), sizes.framework),
        np.full(len(usual), sizes.framework_on_device),
        usual * sizes.mechanism,
        usual * sizes.kind,
        _waiting(points) * sizes.waiting,
        np.full(len(usual), sizes.table),
        points.flags("guessed") * sizes.guessed,
        rough * sizes.local,
        rough * sizes.scatter,
    )
    total: Floats = np.square(parts).sum(axis=0)
    return total


def scatter(points: Points, sizes: Variances) -> Floats:
    """Return the variance of single runs around the common error of their cell, shape P."""
    return np.square(roughness(points, sizes) * sizes.scatter)


def roughness(points: Points, sizes: Variances) -> Floats:
    """Return the factor on the scatter of runs with a small computing share or experts, shape P."""
    waiting = 1.0 + sizes.rough_waiting * (1.0 - points.busy)
    return np.asarray(waiting * (1.0 + sizes.rough_experts * points.flags("experts")))


def _device(points: Points, sizes: Variances) -> Floats:
    has_constants = points.words("constants") == "own"
    return np.asarray(np.where(has_constants, sizes.own_device, sizes.lent_device), dtype=np.float64)


def _foreign(points: Points) -> Floats:
    return np.asarray(points.words("constants") == "foreign", dtype=np.float64)


def _unusual(points: Points) -> Floats:
    return np.asarray(np.where(points.flags("unusual") > 0, 1.0, USUAL_SHARE), dtype=np.float64)


def _waiting(points: Points) -> Floats:
    waiting: Floats = np.maximum(WAITING_BELOW - points.busy, 0.0) / WAITING_BELOW
    return waiting
