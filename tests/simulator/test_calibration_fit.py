"""A machine with known constants is recognised from its runs; what they do not determine is refused with the reason."""

import numpy as np
import pytest
from forerun_machines import machine_context, measured_on, some_strategies, times_of

from forerun.simulator import score
from forerun.simulator.calibration import FittedRun, fit, nothing_measured
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Strategy, table_of

TRUTH = {"host_layer": 1.5, "compute": -1.5}


def found(result) -> dict[str, float]:  # type: ignore[no-untyped-def]
    return {one.constant.name: one.constant.factor(one.z) for one in result.constants if one.refused is None}


@pytest.mark.slow
def test_constants_of_a_known_machine_are_found() -> None:
    context = machine_context()
    result = fit(measured_on(context, some_strategies(), TRUTH))
    moved = found(result)
    host = next(one.constant for one in result.constants if one.constant.name == "host_layer")
    assert moved["host_layer"] == pytest.approx(host.factor(TRUTH["host_layer"]), rel=0.1)
    assert moved["compute"] == pytest.approx(np.exp(-0.12 * 1.5), rel=0.1)
    assert moved["host_rank"] == pytest.approx(1, abs=0.05), "runs that ask for no other cost of a rank"


@pytest.mark.slow
def test_predictions_of_other_strategies_get_better_by_far() -> None:
    context, strategies = machine_context(), some_strategies()
    runs = measured_on(context, strategies, TRUTH, noise=0.01)
    result = fit(runs[::2])
    others, truth = strategies[1::2], np.array([run.step_time_s for run in runs[1::2]])
    before = np.abs(np.array(times_of(context, others)) / truth - 1)
    after = np.abs(np.array(times_of(result.posterior.applied(context), others)) / truth - 1)
    assert np.median(after) < 0.25 * np.median(before)


def test_what_no_run_depends_on_stays_and_is_named() -> None:
    context = machine_context()
    alone = [Strategy(dp=8, mbs=mbs) for mbs in (1, 2, 4, 8)]
    result = fit(measured_on(context, alone, {"host_layer": 1.0}))
    refused = {one.constant.name: one.refused for one in result.constants if one.refused}
    assert "no run depends on it" in refused["p2p_fixed"]
    assert "no run depends on it" in refused["network_bandwidth"]
    assert "network_bandwidth" not in result.posterior.z
    kept = next(one for one in result.constants if one.constant.name == "network_bandwidth")
    assert (kept.z, kept.error) == (0.0, 1.0)


@pytest.mark.slow
def test_a_run_that_disagrees_counts_little() -> None:
    context = machine_context()
    runs = measured_on(context, some_strategies(), TRUTH, noise=0.005)
    odd = runs[5]
    runs[5] = FittedRun(context=context, strategy=odd.strategy, step_time_s=1.6 * odd.step_time_s)
    result = fit(runs)
    weights = result.posterior.evidence.weight
    assert weights.argmin() == 5
    assert weights[5] < 0.2
    assert found(result)["host_layer"] == pytest.approx(np.exp(0.4 * 1.5), rel=0.12)


@pytest.mark.slow  # a fit for every run that is left out
def test_left_out_errors_are_those_of_fits_without_the_run() -> None:
    context, strategies = machine_context(), some_strategies()
    runs = measured_on(context, strategies, {"host_layer": 0.5}, noise=0.02)
    whole = fit(runs)
    for place in (0, 7, 15):
        rest = fit([run for number, run in enumerate(runs) if number != place])
        predicted = times_of(rest.posterior.applied(context), [strategies[place]])[0]
        assert np.log(runs[place].step_time_s / predicted) == pytest.approx(whole.left_out.error[place], abs=0.01)


def test_without_runs_everything_is_the_catalogues() -> None:
    context, strategies = machine_context(), some_strategies()
    assert times_of(nothing_measured().applied(context), strategies) == times_of(context, strategies)
    with pytest.raises(RequestError, match="at least one measured run"):
        fit([])


@pytest.mark.slow
def test_parts_still_add_up_to_the_step() -> None:
    context, strategies = machine_context(), some_strategies()
    result = fit(measured_on(context, strategies[::3], TRUTH, noise=0.05))
    scores = score(result.posterior.applied(context), table_of(strategies))
    np.testing.assert_allclose(sum(scores.time_s.values()), scores.step_time_s, rtol=1e-12)


@pytest.mark.slow  # four machines, each fitted
def test_intervals_hold_as_often_as_they_say() -> None:
    """Machines drawn from the prior itself: nine in ten runs that were not seen lie in their interval, or a little
    more (Student's tails)."""
    context, strategies = machine_context(), some_strategies()
    inside = []
    for seed in range(4):
        draw = np.random.default_rng(seed)
        truth = {name: draw.normal() for name in ("host_layer", "compute", "collective_start")}
        runs = measured_on(context, strategies, truth, noise=0.03, seed=seed)
        posterior = fit(runs[::2]).posterior
        belief = posterior.believe([(posterior.applied(context), table_of(strategies[1::2]))])
        low_s, high_s = belief.interval_s(0.9)
        inside += [low <= run.step_time_s <= high for low, high, run in zip(low_s, high_s, runs[1::2], strict=True)]
    assert 0.85 <= np.mean(inside) <= 0.995


def test_alike_strategies_are_compared_by_their_difference() -> None:
    context, strategies = machine_context(), some_strategies()
    posterior = nothing_measured()
    belief = posterior.believe([(posterior.applied(context), table_of(strategies))])
    alike = belief.alike(0.9)
    np.testing.assert_array_equal(alike, alike.T)
    assert alike.diagonal().all()
    spread = belief.spread()
    own = np.diag(belief.covariance)
    apart = np.sqrt(own[:, None] + own[None, :] - 2 * belief.covariance + 2 * belief.noise)
    independent = np.sqrt(spread[:, None] ** 2 + spread[None, :] ** 2)
    assert (apart <= independent + 1e-12).all()
    assert (apart < 0.8 * independent).any()
