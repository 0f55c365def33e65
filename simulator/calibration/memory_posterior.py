"""Belief about peak memory after measured runs: a corrected peak, its interval, and its OOM risk.

As for time (``posterior``), there are factors on the parts of a peak and a residual of similar strategies. A device
needs the peak without the idle buffers that the allocator frees before it fails; the probability that this exceeds the
memory follows from ``memory_risk`` and the uncertainty that the runs leave.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.calibration.belief import quantile
from forerun.simulator.calibration.evidence import FEW, Evidence, known_covariance
from forerun.simulator.calibration.memory_factors import (
    FACTOR_NAMES,
    FACTORS,
    INSIDE,
    LIVE,
    factor_values,
    held_bytes,
    idle_bytes,
    memory_features,
    memory_slopes,
)
from forerun.simulator.calibration.residual import USUAL, ErrorPriors, residual_covariance, row_products
from forerun.simulator.core.score import score
from forerun.simulator.memory.risk import CalibratedPeaks
from forerun.simulator.score_table import MEMORY_PARTS, Floats
from forerun.spaces.strategies import Context, HeldMemory, StrategyTable


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPosterior:
    """Belief about memory after measured runs.

    ``z``: factors by name that the runs determine; ``scale``: variance of the errors relative to the expected one.
    """

    z: Mapping[str, float]
    evidence: Evidence
    scale: float
    settings: ErrorPriors = USUAL

    def applied(self, context: Context) -> Context:
        """Return the context with fitted memory outside the allocator."""
        profile, factor = context.framework, factor_values(self.z)[-1]
        if factor == 1.0:
            return context
        framework = replace(
            profile,
            context_bytes=profile.context_bytes * factor,
            communicator_bytes=profile.communicator_bytes * factor,
        )
        return replace(context, framework=framework)

    def held(self, context: Context, table: StrategyTable, memory_bytes: Mapping[str, Floats]) -> HeldMemory:
        """Return the memory of every row; ``context`` was ``applied``."""
        held, factors = held_bytes(context, memory_bytes), factor_values(self.z)
        own, left, prior = (np.ones(len(table)) for _ in range(3))
        explained, precision = self._explained(), self._precision()
        for start in range(0, len(table), FEW):
            rows = slice(start, start + FEW)
            features = memory_features(context, table.take(rows), held[rows])
            residual = residual_covariance(features, self.evidence.features, self.settings)
            own[rows] = np.exp(row_products(residual, explained))
            left[rows], prior[rows] = self._variances(held[rows], residual, precision)
        parts = {
            part: memory_bytes[part] * own * factors[place]
            for place, factor in enumerate(FACTORS)
            for part in factor.parts
        }
        more, idle = own * factors[LIVE], idle_bytes(context, memory_bytes)
        lost, idle = more * (held[:, LIVE] - idle) + held[:, INSIDE], more * idle
        needed = sum(parts.values(), lost)
        memory = context.cluster.device.memory_bytes
        # As in the catalogue's prediction: idle buffers are freed before an allocation fails.
        kept = np.minimum(idle, np.maximum(memory - needed, 0.0))
        whole = {**parts, "reserve": lost + kept}
        peak = needed + kept
        told = CalibratedPeaks(peak=peak / memory, needed=needed / memory, left=left / prior, scale=self.scale)
        limit = np.full(len(table), memory)
        if context.oom_risk is not None:
            limit = np.minimum(limit, peak * told.factor_to(context.oom_risk))
        return HeldMemory(
            parts={part: whole[part] for part in MEMORY_PARTS}, oom_risk=told.oom_risk(), limit_bytes=limit
        )

    def reach(self, context: Context, table: StrategyTable, level: float) -> Floats:
        """Return the factor by which a measured peak may be larger, or smaller, with probability ``level``, per row.

        ``context`` was ``applied``.
        """
        bare = replace(context, correction=None)
        held = held_bytes(bare, score(bare, table).memory_bytes)
        features = memory_features(bare, table, held)
        residual = residual_covariance(features, self.evidence.features, self.settings)
        left, _ = self._variances(held, residual, self._precision())
        return np.asarray(np.exp(quantile(level) * np.sqrt(self.scale * left)))

    def _variances(self, held: Floats, residual: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """Return the variance of the log of one more measured peak of every row, after and before the runs.

        The scale of errors is not included. ``residual``: covariance of rows and runs; ``precision``: inverse
        covariance of the runs.
        """
        slopes = memory_slopes(held * factor_values(self.z), np.array(["device"] * len(held)))
        settings = self.settings
        # The residual covariance of a row with itself is that at distance zero, for any row.
        alone = settings.common**2 + settings.per_axis**2 + settings.alike**2
        prior = (slopes**2).sum(axis=1) + alone
        cross = slopes @ self.evidence.slopes.T + residual
        left = np.maximum(prior - np.einsum("nm,nm->n", cross, cross @ precision), 0.0)
        return left + settings.noise**2, prior + settings.noise**2

    def _precision(self) -> Floats:
        """Return the inverse covariance of the runs along all factors, including undetermined ones."""
        every = np.ones(len(FACTORS), dtype=bool)
        return np.asarray(np.linalg.inv(known_covariance(self.evidence, every, self.settings)))

    def _explained(self) -> Floats:
        used = np.array([name in self.z for name in FACTOR_NAMES])
        return np.asarray(np.linalg.solve(known_covariance(self.evidence, used, self.settings), self.evidence.error))
