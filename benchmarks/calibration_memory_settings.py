"""Settings of the residual of peak memory, chosen without the source that they are judged on (used by
calibration_memory.py): the same search as for step times, by the density of measured peaks."""

from collections.abc import Mapping, Sequence

import numpy as np
from calibration_settings import DRAWS, RUNS, Linear, split
from numpy.typing import NDArray
from scipy.stats import t as student

from forerun.search.measured.calibrate.machine import memory_runs_of
from forerun.search.measured.validate import MeasuredRun
from forerun.simulator.calibration import ErrorPriors
from forerun.simulator.calibration.evidence import DOUBT, FREEDOM
from forerun.simulator.calibration.memory import linear_peaks
from forerun.simulator.calibration.residual import residual_covariance

Floats = NDArray[np.float64]

FEWEST_PEAKS = 4
"""Measured peaks of a group by which settings are chosen: half are drawn, or ten, and the others predicted."""
_REWEIGHTS = 6


def groups_of_peaks(members: Mapping[str, Sequence[MeasuredRun]]) -> dict[str, list[Linear]]:
    """Return groups of measured peaks, by source."""
    groups: dict[str, list[Linear]] = {}
    for _, runs in sorted(members.items()):
        measured = [run for run in runs if run.outcome == "ok" and run.peak_memory_bytes]
        if len(measured) >= FEWEST_PEAKS:
            error, slopes, features = linear_peaks(memory_runs_of(measured))
            groups.setdefault(measured[0].file, []).append(Linear(error=error, slopes=slopes, features=features))
    return groups


def peak_density(groups: Sequence[Linear], settings: ErrorPriors) -> float:
    """Return the mean log density of peaks that were not drawn; groups count by the root of their size."""
    weights = [len(group.error) ** 0.5 for group in groups]
    return float(np.average([_own_density(group, settings) for group in groups], weights=weights))


def _own_density(group: Linear, settings: ErrorPriors) -> float:
    """Return the mean log density of the peaks of one group that were not drawn."""
    covariance, found = group.slopes @ group.slopes.T, []
    covariance = covariance + residual_covariance(group.features, group.features, settings)
    for seed in range(DRAWS):
        chosen, rest = split(group, seed, min(RUNS, len(group.error) // 2))
        mean, variance = _predicted(covariance, settings, group.error, chosen)
        spread = np.sqrt(variance[rest])
        found.append(np.mean(student.logpdf((group.error - mean)[rest] / spread, FREEDOM) - np.log(spread)))
    return float(np.mean(found))


def _predicted(
    covariance: Floats, settings: ErrorPriors, error: Floats, chosen: NDArray[np.intp]
) -> tuple[Floats, Floats]:
    """Return mean and variance (noise included) of all errors once some peaks are measured."""
    own, weight = covariance[np.ix_(chosen, chosen)], np.ones(len(chosen))
    for _ in range(_REWEIGHTS):
        whole = own + np.diag(settings.noise**2 / weight)
        solved = np.linalg.solve(whole, error[chosen])
        weight = np.minimum(1.0, (FREEDOM + 1) / (FREEDOM + (error[chosen] - own @ solved) ** 2 / settings.noise**2))
    cross = covariance[:, chosen]
    left = np.diag(covariance) - np.einsum("nm,mn->n", cross, np.linalg.solve(whole, cross.T))
    scale = (DOUBT + error[chosen] @ solved) / (DOUBT + len(chosen))
    return cross @ solved, scale * (np.maximum(left, 0.0) + settings.noise**2)
