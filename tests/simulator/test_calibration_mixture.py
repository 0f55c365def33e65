"""Mixtures of priors: shares by the density of the runs, intervals by the whole mixture, predictions that agree."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_machines import machine_context, measured_on, some_strategies, times_of
from scipy.stats import multivariate_t
from scipy.stats import t as student

from forerun.simulator import score
from forerun.simulator.calibration import (
    CONSTANTS,
    NAMES,
    PRIORS,
    USUAL,
    Components,
    Evidence,
    Posterior,
    Prior,
    PriorMixture,
    fit,
)
from forerun.simulator.calibration.evidence import DOUBT, FREEDOM
from forerun.simulator.calibration.fit import left_out
from forerun.simulator.calibration.mixture import Covariances, log_density, restored, shares_of, weighed
from forerun.simulator.calibration.residual import Features
from forerun.spaces.strategies import table_of

EVERY = np.ones(len(NAMES), dtype=bool)
ACTING = np.array([constant.acts_on(machine_context()) for constant in CONSTANTS])
CALM = Prior(constants=0.25, residual=0.5, noise=0.5)


def evidence_drawn(prior: Prior, seed: int, runs: int = 10, others: int = 0) -> Evidence:
    """Return runs of a machine that was drawn from a prior itself: constants, residual and noise."""
    draw = np.random.default_rng(seed)
    count = runs + others
    features = Features(
        draw.normal(size=(count, 5)), 0.3 * draw.normal(size=(count, 3)), np.full((count, 1), "flash", dtype=np.str_)
    )
    slopes = np.zeros((count, len(NAMES)))
    slopes[:, ACTING] = 0.08 * draw.normal(size=(count, ACTING.sum()))
    blank = Evidence(features=features, slopes=slopes, error=np.zeros(count), weight=np.ones(count))
    covariance = Covariances.of(blank, EVERY, USUAL).known(prior, np.ones(count))
    return replace(blank, error=np.linalg.cholesky(covariance) @ draw.normal(size=count))


def taken(evidence: Evidence, rows: slice) -> Evidence:
    features = evidence.features.take(np.arange(len(evidence))[rows])
    return Evidence(
        features=features, slopes=evidence.slopes[rows], error=evidence.error[rows], weight=evidence.weight[rows]
    )


def weighed_by(evidence: Evidence) -> PriorMixture:
    return weighed(evidence, EVERY, USUAL, PRIORS, np.ones((len(PRIORS), len(evidence))))


def test_the_density_of_runs_is_students() -> None:
    evidence = evidence_drawn(Prior(), 1)
    covariance = Covariances.of(evidence, EVERY, USUAL).known(Prior(), evidence.weight)
    expected = multivariate_t(np.zeros(10), covariance, df=DOUBT).logpdf(evidence.error)
    assert log_density(covariance, evidence.error) == pytest.approx(expected, rel=1e-9)


def test_shares_are_the_densities_over_their_sum() -> None:
    np.testing.assert_allclose(shares_of(np.log(np.array([1.0, 2.0, 5.0]) * 1e-200)), [0.125, 0.25, 0.625])
    evidence = evidence_drawn(CALM, 2)
    mixture = weighed_by(evidence)
    own = Covariances.of(evidence, EVERY, USUAL)
    densities = [log_density(own.known(p, w), evidence.error) for p, w in zip(PRIORS, mixture.weight, strict=True)]
    ratio = mixture.shares[0] / mixture.shares[-1]
    assert np.log(ratio) == pytest.approx(densities[0] - densities[-1])
    assert mixture.shares.sum() == pytest.approx(1.0)


def test_machines_are_recognised_by_how_far_they_lie_from_the_catalogue() -> None:
    """Of machines far from the catalogue the wide constants get most of the belief, of those close to it the others."""
    wide = np.array([prior.constants == 1.0 for prior in PRIORS])
    shares = {
        prior: np.mean([weighed_by(evidence_drawn(prior, seed, runs=20)).shares[wide].sum() for seed in range(12)])
        for prior in (CALM, Prior(constants=1.0, residual=0.5, noise=0.5))
    }
    close, far = shares.values()
    assert close < 0.35
    assert far > 0.75


def test_close_to_the_catalogue_constants_move_less_than_under_wide_priors_alone() -> None:
    moved = []
    for seed in range(12):
        evidence = evidence_drawn(CALM, 50 + seed)
        alone = weighed(evidence, EVERY, USUAL, (Prior(),), np.ones((1, len(evidence))))
        mixture = weighed_by(evidence)
        pair = [one.shares @ one.constants(evidence, EVERY) for one in (mixture, alone)]
        moved.append(np.linalg.norm(pair[0]) / np.linalg.norm(pair[1]))
    assert np.mean(moved) < 0.6


def test_quantiles_of_a_mixture_are_those_of_draws_from_it() -> None:
    draw = np.random.default_rng(7)
    shares = np.array([0.5, 0.3, 0.2])
    apart = np.array([[0.0, -0.02], [0.05, 0.0], [-0.1, 0.3]])
    spread = np.array([[0.02, 0.05], [0.03, 0.05], [0.1, 0.02]])
    parts = Components(shares=shares, offset=apart, spread=spread)
    which = draw.choice(3, 400_000, p=shares)
    seen = apart[which] + spread[which] * draw.standard_t(FREEDOM, (len(which), 1))
    for probability in (0.05, 0.5, 0.95):
        below = (seen <= parts.quantile(probability)).mean(axis=0)
        np.testing.assert_allclose(below, probability, atol=0.003)


def test_one_component_has_students_quantiles() -> None:
    spread = np.array([[0.02, 0.5]])
    parts = Components(shares=np.ones(1), offset=np.zeros((1, 2)), spread=spread)
    np.testing.assert_allclose(parts.quantile(0.95), spread[0] * student(FREEDOM).ppf(0.95), rtol=1e-8)


@pytest.mark.slow
def test_ninety_in_a_hundred_of_what_was_not_measured_lie_within() -> None:
    """Machines of every prior, ten runs each: intervals hold 90 % of the others, or a little more (their tails are
    heavier than those of what was drawn)."""
    inside = []
    for place, prior in enumerate(PRIORS):
        for seed in range(6):
            whole = evidence_drawn(prior, 1000 + 20 * place + seed, others=30)
            ten = taken(whole, slice(0, 10))
            mixture, covariances = weighed_by(ten), Covariances.of(whole, EVERY, USUAL)
            means, spreads = np.empty((2, len(PRIORS), 40))
            for k, (own, weight) in enumerate(zip(mixture.priors, mixture.weight, strict=True)):
                cross = covariances.under(own)[:, :10]
                known = Covariances.of(ten, EVERY, USUAL).known(own, weight)
                means[k] = cross @ mixture.solved[k]
                left = np.diag(covariances.under(own)) - np.einsum("nm,mn->n", cross, np.linalg.solve(known, cross.T))
                spreads[k] = np.sqrt(mixture.scale[k] * (left + (own.noise * USUAL.noise) ** 2))
            middle = mixture.shares @ means
            parts = Components(shares=mixture.shares, offset=means - middle, spread=spreads)
            error = (whole.error - middle)[10:]
            inside += list((parts.quantile(0.05)[10:] <= error) & (error <= parts.quantile(0.95)[10:]))
    assert 0.87 <= np.mean(inside) <= 0.97


def test_shares_without_a_run_are_those_of_the_others_alone() -> None:
    evidence = evidence_drawn(Prior(), 5, runs=8)
    mixture = weighed_by(evidence)
    result = left_out(evidence, mixture, EVERY, USUAL)
    for gone in (0, 3, 7):
        rows = np.setdiff1d(np.arange(8), [gone])
        rest = Evidence(
            features=evidence.features.take(rows),
            slopes=evidence.slopes[rows],
            error=evidence.error[rows],
            weight=evidence.weight[rows],
        )
        own, whole = Covariances.of(rest, EVERY, USUAL), Covariances.of(evidence, EVERY, USUAL)
        told = [log_density(own.known(p, w[rows]), rest.error) for p, w in zip(PRIORS, mixture.weight, strict=True)]
        alone = restored(rest, EVERY, USUAL, PRIORS, shares_of(np.array(told)), mixture.weight[:, rows])
        means = [whole.under(p)[gone, rows] @ one for p, one in zip(PRIORS, alone.solved, strict=True)]
        assert result.error[gone] == pytest.approx(evidence.error[gone] - alone.shares @ means, abs=1e-9)
    assert (result.low < result.high).all()


@pytest.fixture(scope="module")
def learned() -> Posterior:
    context, strategies = machine_context(), some_strategies()
    return fit(measured_on(context, strategies[::2], {"host_layer": 0.7, "compute": -0.8}, noise=0.03)).posterior


@pytest.mark.slow
def test_what_is_believed_is_what_a_calibrated_context_scores(learned: Posterior) -> None:
    context, strategies = learned.applied(machine_context()), some_strategies()
    belief = learned.believe([(context, table_of(strategies))])
    np.testing.assert_allclose(belief.time_s(), times_of(context, strategies), rtol=1e-9)


def test_covariances_are_the_moments_of_the_components(learned: Posterior) -> None:
    context, strategies = learned.applied(machine_context()), some_strategies()
    belief = learned.believe([(context, table_of(strategies))])
    parts = belief.components
    assert parts is not None
    np.testing.assert_allclose(parts.shares @ parts.offset, 0.0, atol=1e-9)
    variance = parts.shares @ (parts.spread**2 + parts.offset**2)
    np.testing.assert_allclose(belief.spread() ** 2, variance, rtol=1e-9)
    assert np.linalg.eigvalsh(belief.covariance).min() > -1e-9
    low_s, high_s = belief.interval_s(0.9)
    assert ((low_s < belief.time_s()) & (belief.time_s() < high_s)).all()
    wider_low_s, wider_high_s = belief.interval_s(0.99)
    assert ((wider_low_s < low_s) & (high_s < wider_high_s)).all()


def test_what_is_ruled_out_is_certain_and_slow(learned: Posterior) -> None:
    context, strategies = learned.applied(machine_context()), some_strategies()
    belief = learned.believe([(context, table_of(strategies))]).without([2])
    faster, slower = belief.reach(0.9)
    assert (faster[2], slower[2]) == (pytest.approx(1.0), pytest.approx(1.0))
    assert belief.time_s()[2] > 1e30
    assert slower[3] > 1.01


def test_a_hundred_thousand_rows_are_predicted_as_they_are_alone(learned: Posterior) -> None:
    context, strategies = learned.applied(machine_context()), some_strategies()
    many = table_of(strategies).take(np.arange(100_000) % len(strategies))
    times = score(context, many).step_time_s
    alone = np.array([times_of(context, [one])[0] for one in strategies])
    np.testing.assert_allclose(times, alone[np.arange(100_000) % len(strategies)], rtol=1e-12)
