"""Belief about step times after measured runs: constants, residuals of similar strategies, and uncertainty.

With slopes at the fitted constants the model is linear (``evidence``), so under one prior the belief is Gaussian with
one covariance over all strategies: errors of similar strategies are correlated, and the difference of two is often much
more certain than either. The means of several priors (``mixture``) are averaged, so that one context with the averaged
constants and one residual gives the prediction of all priors.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import solve_triangular

from forerun.simulator.calibration.belief import Belief, Components
from forerun.simulator.calibration.constants import NAMES, C, calibrated
from forerun.simulator.calibration.evidence import FEW, Evidence, slopes_of
from forerun.simulator.calibration.mixture import PRIORS, Covariances, PriorMixture, weighed
from forerun.simulator.calibration.residual import (
    USUAL,
    ErrorPriors,
    Features,
    features_of,
    joined,
    residual_covariance,
    row_products,
)
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.table import SplitTable
from forerun.simulator.score_table import Floats
from forerun.simulator.scoring import score
from forerun.spaces.strategies import Context, HeldMemory, StrategyTable

if TYPE_CHECKING:
    from forerun.simulator.calibration.memory_posterior import MemoryPosterior


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Belief about a machine after measured runs.

    ``z``: fitted constants by name (those determined by the runs), averaged over the ``mixture`` of priors; an
    ``applied`` context has them built in and carries the residual as its correction. ``held``: the belief about memory.
    """

    z: Mapping[str, float]
    evidence: Evidence
    mixture: PriorMixture
    settings: ErrorPriors = USUAL
    held: "MemoryPosterior | None" = None

    def applied(self, context: C) -> C:
        """Return a context of the calibrated machine, with the residual of similar strategies in its scores."""
        known: Any = calibrated(context, self.z)
        if self.held is not None:  # of transformers
            known = self.held.applied(known)
        result: C = replace(known, correction=self)
        return result

    def memory(self, context: Context, table: StrategyTable, memory_bytes: Mapping[str, Floats]) -> HeldMemory | None:
        """Return the memory of every row (see ``Context.correction``); None without measured memory."""
        return None if self.held is None else self.held.held(context, table, memory_bytes)

    def factor(
        self, context: Context | GraphContext, table: StrategyTable | SplitTable, time_s: Mapping[str, Floats]
    ) -> Floats:
        """Return the residual's factor on the step time of every row (see ``Context.correction``)."""
        result = np.ones(len(table))
        if not len(self.evidence):
            return result
        explained = self.mixture.explained
        for start in range(0, len(table), FEW):
            rows = slice(start, start + FEW)
            part = features_of(context, table.take(rows), {name: values[rows] for name, values in time_s.items()})
            result[rows] = np.exp(row_products(self._residual(part), explained))
        return result

    def believe(self, parts: Sequence[tuple[Context | GraphContext, StrategyTable | SplitTable]]) -> Belief:
        """Return the belief about the strategies of several tables in order; each context was ``applied``.

        The covariance takes every constant into account, including those that the runs do not determine.
        """
        bare = [(replace(context, correction=None), table) for context, table in parts]
        scores = [score(context, table) for context, table in bare]
        features = joined([features_of(*part, one.time_s) for part, one in zip(bare, scores, strict=True)])
        slopes = np.concatenate([slopes_of(*part) for part in bare])
        residual = self._residual(features)
        log_time = np.log(np.concatenate([one.step_time_s for one in scores])) + row_products(
            residual, self.mixture.explained
        )
        # Of a mixture with shares p_k: mean = sum p_k m_k, covariance = sum p_k (K_k + (m_k - mean) (m_k - mean)^T).
        shares, offset = self.mixture.shares, self._offset(slopes, residual)
        covariance, spread = np.zeros((len(log_time),) * 2), np.empty(offset.shape)
        prior = Covariances(
            along=slopes @ slopes.T,
            residual=residual_covariance(features, features, self.settings),
            noise=self.settings.noise,
        )
        for place, own in enumerate(self._covariances(prior, slopes @ self.evidence.slopes.T, residual)):
            covariance += shares[place] * (own + np.outer(offset[place], offset[place]))
            spread[place] = np.sqrt(np.maximum(np.diag(own), 0.0) + self.noise[place])
        return Belief(
            log_time=log_time,
            covariance=covariance,
            noise=float(shares @ self.noise),
            components=Components(shares=shares, offset=offset, spread=spread),
        )

    def _residual(self, features: Features) -> Floats:
        """Return the prior residual covariance [M, N] between strategies and runs."""
        if not len(self.evidence):
            return np.zeros((len(features), 0))
        return residual_covariance(features, self.evidence.features, self.settings)

    def _offset(self, slopes: Floats, residual: Floats) -> Floats:
        """Return the difference [K, M] of every prior's prediction of strategies from the average.

        ``slopes`` [M, C]: of the strategies; ``residual`` [M, N]: residual covariance between strategies and runs.
        """
        used = np.array([name in self.z for name in NAMES])
        amplitudes = np.array([prior.residual for prior in self.mixture.priors])
        offsets = self.mixture.constants(self.evidence, used) @ slopes.T
        offsets = offsets + amplitudes[:, None] ** 2 * (self.mixture.solved @ residual.T)
        return np.asarray(offsets - self.mixture.shares @ offsets)

    def _covariances(self, prior: Covariances, along: Floats, residual: Floats) -> Iterator[Floats]:
        """Yield the posterior covariance [M, M] of strategies under every prior.

        ``along`` and ``residual`` [M, N]: covariances between strategies and runs.
        """
        every = Covariances.of(self.evidence, np.ones(len(NAMES), dtype=bool), self.settings)
        for component, weight, scale in zip(self.mixture.priors, self.mixture.weight, self.mixture.scale, strict=True):
            left = prior.under(component)
            if len(self.evidence):
                # K' = K - K_r (K_rr + noise)^-1 K_r^T; with the Cholesky factor L of K_rr + noise, ``half`` is L^-1
                # K_r^T.
                lower = np.linalg.cholesky(every.known(component, weight))
                cross = component.constants**2 * along + component.residual**2 * residual
                half = solve_triangular(lower, cross.T, lower=True)
                left = left - half.T @ half
            yield scale * left

    @property
    def noise(self) -> Floats:
        """Variance [K] of the log time of one more run under every prior."""
        noise = np.array([prior.noise for prior in self.mixture.priors]) * self.settings.noise
        return np.asarray(self.mixture.scale * noise**2)


def nothing_measured(settings: ErrorPriors = USUAL) -> Posterior:
    """Return the belief before any run: the catalogue, with its usual errors."""
    empty = np.zeros((0, 0))
    features = Features(empty, empty, np.zeros((0, 0), dtype=np.str_))
    evidence = Evidence(features=features, slopes=np.zeros((0, len(NAMES))), error=np.zeros(0), weight=np.ones(0))
    mixture = weighed(evidence, np.zeros(len(NAMES), dtype=bool), settings, PRIORS)
    return Posterior(z={}, evidence=evidence, mixture=mixture, settings=settings)
