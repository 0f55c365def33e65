"""Peak memory learned from runs: known factors are found, labels bound it from one side, kinds are kept apart."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from forerun_machines import machine_context, some_strategies

from forerun.simulator import score
from forerun.simulator.assignment.memory import memory_by_stage
from forerun.simulator.calibration import FACTORS, MemoryRun, fit_memory, nothing_measured
from forerun.simulator.calibration.censored import observations
from forerun.simulator.calibration.memory_factors import held_bytes
from forerun.spaces.strategies import Context, Recompute, Strategy, table_of

KINDS = {"allocated": 4, "reserved": 5, "device": 6}
"""How many of the factors, in their order, a measurement of each kind knows of."""


def roomy_context() -> Context:
    """Return a machine in which everything fits, so that idle buffers have room."""
    context = machine_context()
    device = replace(context.cluster.device, memory_bytes=1e12)
    return replace(context, cluster=replace(context.cluster, device=device))


def true_bytes(context: Context, strategies: list[Strategy], truth: dict[str, float], kind: str) -> np.ndarray:
    """Return what a machine would measure whose factors are ``truth``."""
    held = held_bytes(context, score(context, table_of(strategies)).memory_bytes)
    factors = np.array([truth.get(factor.name, 1.0) for factor in FACTORS])
    return (held * factors)[:, : KINDS[kind]].sum(axis=1)


def runs_of(context: Context, strategies: list[Strategy], truth: dict[str, float], kind: str) -> list[MemoryRun]:
    return [
        MemoryRun(context=context, strategy=strategy, peak_bytes=float(peak), kind=kind, fitted=True)
        for strategy, peak in zip(strategies, true_bytes(context, strategies, truth, kind), strict=True)
    ]


def test_factors_of_a_known_machine_are_found() -> None:
    context, strategies = roomy_context(), some_strategies()
    result = fit_memory(runs_of(context, strategies, {"activations": 1.3}, "allocated"))
    assert result is not None
    found = {one.factor.name: one.factor.factor(one.z) for one in result.factors if one.determined}
    assert found["activations"] == pytest.approx(1.3, rel=0.1)
    assert found.get("states", 1.0) == pytest.approx(1.0, abs=0.05)
    low, high = next(one.between for one in result.factors if one.factor.name == "activations")
    assert low < 1.3 < high


def test_peaks_of_other_strategies_get_better_by_far() -> None:
    context, strategies = roomy_context(), some_strategies()
    truth = {"activations": 1.3, "fragmentation": 2.0, "outside": 1.4}
    result = fit_memory(runs_of(context, strategies[::2], truth, "device"))
    assert result is not None
    posterior = replace(nothing_measured(), held=result.posterior)
    others, known = strategies[1::2], true_bytes(context, strategies[1::2], truth, "device")
    before = np.abs(score(context, table_of(others)).peak_memory_bytes / known - 1)
    scores = score(posterior.applied(context), table_of(others))
    assert np.median(np.abs(scores.peak_memory_bytes / known - 1)) < 0.3 * np.median(before)
    np.testing.assert_allclose(sum(scores.memory_bytes.values()), scores.peak_memory_bytes)
    np.testing.assert_allclose(scores.allocated_bytes, scores.peak_memory_bytes - scores.memory_bytes["reserve"])
    assert (scores.step_time_s == score(context, table_of(others)).step_time_s).all()


@pytest.mark.parametrize(("kind", "unknown"), [("allocated", {"fragmentation", "outside"}), ("reserved", {"outside"})])
def test_a_kind_says_nothing_of_what_it_does_not_count(kind: str, unknown: set[str]) -> None:
    context = roomy_context()
    result = fit_memory(runs_of(context, some_strategies(), {"fragmentation": 2.0, "outside": 1.5}, kind))
    assert result is not None
    assert unknown <= {one.factor.name for one in result.factors if not one.determined}


def test_a_peak_of_the_first_stage_is_held_against_the_first_stage() -> None:
    """The head makes the last stage the fullest; runs whose first stage holds what is predicted teach nothing."""
    context = roomy_context()
    strategy = Strategy(dp=2, tp=1, pp=8, mbs=4, zero=1, recompute=Recompute.FULL)
    stages = [sum(parts.values()) for parts in memory_by_stage(context, strategy)]
    assert stages[0] < 0.95 * max(stages)
    run = MemoryRun(context=context, strategy=strategy, peak_bytes=stages[0], kind="device", fitted=True, of_first=True)
    told, misread = fit_memory([run]), fit_memory([replace(run, of_first=False)])
    assert told is not None and misread is not None
    assert told.before[0] == pytest.approx(0.0, abs=1e-12)
    assert misread.before[0] == pytest.approx(np.log(stages[0] / max(stages)))


def test_all_stages_are_calibrated_as_the_fullest_is() -> None:
    context, strategies = roomy_context(), some_strategies()
    result = fit_memory(runs_of(context, strategies, {"activations": 1.3, "outside": 1.4}, "device"))
    assert result is not None
    known = replace(nothing_measured(), held=result.posterior).applied(context)
    strategy = Strategy(dp=2, tp=2, pp=4, mbs=2, zero=1, sp=True)
    scores, stages = score(known, table_of([strategy])), memory_by_stage(known, strategy)
    fullest = stages[int(scores.peak_stage[0])]
    assert sum(fullest.values()) == pytest.approx(scores.peak_memory_bytes[0], rel=1e-9)
    plain = memory_by_stage(context, strategy)
    assert all(sum(own.values()) > sum(before.values()) for own, before in zip(stages, plain, strict=True))


def test_runs_that_ran_out_of_memory_raise_the_peak() -> None:
    """A strategy that should need 95 % of the device ran out of it: it, and its like, are believed to need more."""
    context, strategies = machine_context(), some_strategies()
    peak = score(context, table_of(strategies)).peak_memory_bytes
    row = int(peak.argmax())
    small = replace(context.cluster.device, memory_bytes=float(peak[row]) / 0.95)
    context = replace(context, cluster=replace(context.cluster, device=small))
    before = score(context, table_of([strategies[row]])).peak_memory_bytes[0]
    label = MemoryRun(context=context, strategy=strategies[row], peak_bytes=None, kind="allocated", fitted=False)
    result = fit_memory([label])
    assert result is not None
    after = score(replace(nothing_measured(), held=result.posterior).applied(context), table_of([strategies[row]]))
    assert after.peak_memory_bytes[0] > before
    assert not after.fits[0]
    assert result.margin_before[0] > 0
    assert result.posterior.scale == 1.0


def test_labels_that_were_expected_teach_nothing() -> None:
    context, strategies = roomy_context(), some_strategies()[:4]
    labels = [
        MemoryRun(context=context, strategy=strategy, peak_bytes=None, kind="allocated", fitted=True)
        for strategy in strategies
    ]
    result = fit_memory(labels)
    assert result is not None
    assert not any(one.determined for one in result.factors)
    known = replace(nothing_measured(), held=result.posterior).applied(context)
    np.testing.assert_allclose(
        score(known, table_of(strategies)).peak_memory_bytes,
        score(context, table_of(strategies)).peak_memory_bytes,
        rtol=1e-3,
    )
    assert fit_memory([]) is None


def test_bounds_hold_the_measured_peak_and_narrow_with_runs() -> None:
    context, strategies = roomy_context(), some_strategies()
    truth = {"activations": 1.2, "workspace": 1.3}
    half = strategies[::2]
    wide, narrow = (fit_memory(runs_of(context, half[:count], truth, "device")) for count in (1, len(half)))
    assert wide is not None
    assert narrow is not None
    others = table_of(strategies[1::2])
    known = replace(nothing_measured(), held=narrow.posterior).applied(context)
    few, many = (one.posterior.reach(known, others, 0.9) for one in (wide, narrow))
    assert np.median(many - 1) < 0.5 * np.median(few - 1)
    peak, measured = score(known, others).peak_memory_bytes, true_bytes(context, strategies[1::2], truth, "device")
    assert np.mean((peak / many < measured) & (measured < peak * many)) >= 0.9


def test_a_label_is_a_truncated_gaussian() -> None:
    """One quantity of variance 1 that lies above 0.5: mean and variance of the truncated normal (closed form)."""
    noise, normal = 0.03, NormalDist()
    seen, weight = observations(np.eye(1), np.array([0.5]), np.array([1], dtype=np.int8), noise, np.ones(1))
    gain = 1.0 / (1.0 + noise**2 / weight[0])
    spread = np.sqrt(1 + noise**2)
    slope = normal.pdf(0.5 / spread) / normal.cdf(-0.5 / spread)
    assert gain * seen[0] == pytest.approx(slope / spread, rel=1e-3)
    assert 1 - gain == pytest.approx(1 - slope * (slope - 0.5 / spread) / spread**2, rel=1e-3)


def test_measurements_stay_as_they_are_beside_labels() -> None:
    prior = np.array([[1.0, 0.8], [0.8, 1.0]])
    seen, weight = observations(
        prior, np.array([0.2, 0.4]), np.array([0, -1], dtype=np.int8), 0.1, np.array([0.7, 1.0])
    )
    assert (seen[0], weight[0]) == (0.2, 0.7)
    assert 0 < weight[1] < 0.2
