"""The next run of a tuning: laws of the chooser, and its posterior against a plain conditional Gaussian."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_t

from forerun.search.tune import Candidate, Chooser, RunCost, RunOutcome
from forerun.search.tune.axes import axes_of
from forerun.search.tune.posterior import BIAS, BIASED, DOUBT, USUAL, agreement, risks_after
from forerun.spaces.errors import RequestError

TEXTS = [
    f"tp{tp} pp{pp} dp{16 // tp // pp} mbs{mbs} zero1{recompute}"
    for tp in (1, 2, 4)
    for pp in (1, 2)
    for mbs in (1, 2)
    for recompute in ("", " recompute=full")
]


def candidates(times: list[float], risks: list[float] | None = None) -> list[Candidate]:
    risks = risks or [0.0] * len(times)
    return [
        Candidate(key=text, strategy=text, step_s=time, oom_probability=risk)
        for text, time, risk in zip(TEXTS, times, risks, strict=False)
    ]


def ran(key: str, step_s: float) -> RunOutcome:
    return RunOutcome(key=key, status="ok", step_s=step_s)


TIMES = st.lists(st.floats(0.5, 5.0), min_size=2, max_size=12)


@given(TIMES, st.data())
def test_no_run_is_proposed_twice_and_a_measured_best_is_kept(times: list[float], data: st.DataObject) -> None:
    chooser, outcomes = Chooser(candidates(times)), list[RunOutcome]()
    while (choice := chooser.next_run(outcomes)) is not None:
        assert choice.candidate.key not in {one.key for one in outcomes}
        status = data.draw(st.sampled_from(["ok", "oom", "failed", "hung", "stopped"]))
        step_s = data.draw(st.floats(0.5, 5.0)) if status in ("ok", "stopped") else None
        outcomes.append(RunOutcome(key=choice.candidate.key, status=status, step_s=step_s))
        measured = {one.key: one.step_s for one in outcomes if one.step_s is not None}
        best = chooser.best(outcomes)
        assert (best is None) == (not measured)
        if best is not None:
            assert measured[best.key] == min(measured.values())
    assert len(outcomes) <= len(times)
    assert chooser.stop_reason(outcomes)


@given(TIMES)
def test_order_follows_predictions_before_any_outcome(times: list[float]) -> None:
    chooser = Chooser(candidates(times))
    choice = chooser.next_run([])
    assert choice is not None
    assert choice.candidate.step_s == min(times)
    assert (
        np.argsort(chooser.posterior([]).time_s(), kind="stable").tolist() == np.argsort(times, kind="stable").tolist()
    )


@given(TIMES, st.randoms(use_true_random=False))
def test_the_choice_does_not_depend_on_the_order_of_outcomes(times: list[float], random: object) -> None:
    outcomes = [ran(text, time * 1.1) for text, time in zip(TEXTS, times[:-1], strict=False)]
    shuffled = sorted(outcomes, key=lambda one: random.random())  # type: ignore[attr-defined]
    chooser = Chooser(candidates(times))
    first, second = (chooser.next_run(order) for order in (outcomes, shuffled))
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert first.candidate == second.candidate
        assert first.gain == pytest.approx(second.gain, rel=1e-9, abs=1e-12)


def test_the_posterior_is_the_conditional_gaussian_of_the_joint_one() -> None:
    """From the precision matrix of candidates and runs together, and not from the covariance."""
    times = np.linspace(1.0, 2.0, 8)
    measured = {1: 1.2, 4: 1.6, 6: 1.9}
    chooser = Chooser(candidates(times.tolist()))
    belief = chooser.prior.conditioned(list(measured), np.log(list(measured.values())))

    covariance = np.empty((8, 8))
    for one in range(8):
        for other in range(8):
            axes = [axes_of(TEXTS[one]), axes_of(TEXTS[other])]
            names = [n for n in axes[0] | axes[1] if len({axes_of(text).get(n) for text in TEXTS[:8]}) > 1]
            every = {n for text in TEXTS[:8] for n in axes_of(text) if len({axes_of(t).get(n) for t in TEXTS[:8]}) > 1}
            same = len(every) - sum(axes[0].get(n) != axes[1].get(n) for n in names)
            covariance[one, other] = USUAL.common**2 + USUAL.axes**2 * same / len(every)
        covariance[one, one] += USUAL.alone**2
    rows = list(measured)
    precision = np.linalg.inv(covariance)
    pull = precision @ np.log(times)
    for row, step_s in measured.items():
        precision[row, row] += USUAL.noise**-2
        pull[row] += np.log(step_s) / USUAL.noise**2
    expected = np.linalg.inv(precision)
    assert belief.log_time == pytest.approx(expected @ pull, abs=1e-9)
    assert belief.covariance == pytest.approx(expected, abs=1e-9)
    assert np.diag(belief.covariance)[rows].max() < USUAL.noise**2


def test_runs_far_from_their_predictions_widen_the_others() -> None:
    """By two hypotheses of Student's distribution, so that a prior that a run has refuted rules no strategy out."""
    times = [1.0, 1.05, 1.1, 1.2]
    chooser = Chooser(candidates(times))
    for factor in (0.25, 0.7, 4.0):
        choice = chooser.next_run([ran(TEXTS[0], factor)])
        assert choice is not None and choice.gain > 0.0099
        error = np.log([factor])
        variance = np.array([USUAL.common**2 + USUAL.axes**2 + USUAL.alone**2 + USUAL.noise**2])
        shapes = [variance, variance + BIAS**2]
        shares = [
            probability * multivariate_t(shape=shape, df=DOUBT).pdf(error)
            for probability, shape in zip((1 - BIASED, BIASED), shapes, strict=True)
        ]
        scales = [max(1.0, (DOUBT + error[0] ** 2 / shape[0]) / (DOUBT + 1)) for shape in shapes]
        expected = np.dot(shares, scales) / sum(shares)
        assert chooser.posterior([ran(TEXTS[0], factor)]).noise == pytest.approx(USUAL.noise**2 * expected)


def test_runs_as_predicted_leave_the_spreads() -> None:
    times = [1.0, 1.05, 1.1, 1.2, 1.3]
    chooser = Chooser(candidates(times))
    belief = chooser.posterior([ran(text, time) for text, time in zip(TEXTS[:3], times[:3], strict=True)])
    plain = chooser.prior.conditioned([0, 1, 2], np.log(times[:3]))
    assert belief.spread() == pytest.approx(plain.spread(), rel=0.01)
    assert belief.log_time == pytest.approx(plain.log_time, abs=1e-6)


@given(TIMES, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_runs_that_contradict_each_other_more_never_mean_less_doubt(
    times: list[float], less: float, more: float
) -> None:
    chooser = Chooser(candidates(times))
    less, more = sorted((less, more))
    near, far = (
        chooser.posterior([ran(TEXTS[0], times[0] * np.exp(error)), ran(TEXTS[1], times[1] * np.exp(-error))])
        for error in (less, more)
    )
    assert (far.spread() >= near.spread() * (1 - 1e-9)).all()


@pytest.mark.parametrize("factor", [0.25, 0.5, 2.0, 4.0])
def test_a_common_factor_on_all_steps_costs_two_more_runs_at_most(factor: float) -> None:
    """The order is right where a catalogue is wrong by one factor, and further runs only confirm it."""
    times = [1.0, 1.1, 1.2, 1.35, 1.45, 1.6, 1.7, 1.8]
    counts = []
    for scale in (1.0, factor):
        chooser, outcomes = Chooser(candidates(times), training_s=30 * 86400), list[RunOutcome]()
        while (choice := chooser.next_run(outcomes)) is not None:
            outcomes.append(ran(choice.candidate.key, scale * choice.candidate.step_s))
        counts.append(len(outcomes))
    assert counts[1] <= counts[0] + 2 < len(times)


def test_runs_under_way_are_no_evidence_about_spreads() -> None:
    chooser = Chooser(candidates([1.0, 1.05, 1.1, 1.2]))
    over = [ran(TEXTS[0], 4.0)]
    pending = chooser.as_expected(TEXTS[1], over)
    assert chooser.posterior([*over, pending]).noise == chooser.posterior(over).noise
    assert chooser.posterior([pending, *over]).log_time == pytest.approx(chooser.posterior([*over, pending]).log_time)


def test_a_slow_run_lowers_the_hope_of_candidates_like_it() -> None:
    chooser = Chooser(candidates([1.0] * len(TEXTS)))
    before = chooser.posterior([]).log_time
    after = chooser.posterior([ran(TEXTS[0], 1.3)]).log_time
    agreed = agreement([axes_of(text) for text in TEXTS])[0]
    assert (after > before).all()
    assert np.corrcoef(after - before, agreed)[0, 1] > 0.99


def test_the_first_run_is_safe() -> None:
    chooser = Chooser(candidates([1.0, 1.03, 1.5], [0.3, 0.02, 0.0]))
    choice = chooser.next_run([])
    assert choice is not None
    assert choice.candidate.key == TEXTS[1]
    assert "2.0%" in choice.reason
    assert choice.gain > 0


def test_running_out_of_memory_raises_the_risk_of_others_and_running_lowers_it() -> None:
    risk = np.array([0.3, 0.3, 0.3, 0.01])
    agreed = agreement([axes_of(text) for text in TEXTS[:4]])
    worse = risks_after(risk, agreed, [0], [True])
    better = risks_after(risk, agreed, [0], [False])
    assert (worse[1:] > risk[1:]).all()
    assert (better[1:] < risk[1:]).all()
    assert worse[0] > 0.8
    assert better[0] < 0.2


@pytest.mark.slow
def test_the_probability_of_failing_is_the_share_of_draws_that_fail() -> None:
    """Expectation propagation against rejection sampling from the joint Gaussian."""
    risk, agreed = np.array([0.4, 0.5, 0.2]), agreement([axes_of(text) for text in TEXTS[:3]])
    from scipy.stats import norm

    covariance = 0.25 * (1 + agreed) + 0.5 * np.eye(3)
    draws = np.random.default_rng(1).multivariate_normal(norm.ppf(risk), covariance, 400_000)
    kept = draws[(draws[:, 0] > 0) & (draws[:, 1] < 0)]
    assert risks_after(risk, agreed, [0, 1], [True, False])[2] == pytest.approx((kept[:, 2] > 0).mean(), abs=0.03)


def test_a_run_that_costs_more_than_it_can_save_ends_the_search() -> None:
    times, cost = [1.0, 1.02, 1.04], RunCost(start_s=60.0, steps=10)
    outcomes = [ran(TEXTS[0], 1.0)]
    long, short = (Chooser(candidates(times), training_s=length, cost=cost) for length in (1e7, 1e2))
    choice = long.next_run(outcomes)
    assert choice is not None
    assert choice.gain_gpu_s is not None
    assert choice.gain_gpu_s > choice.cost_gpu_s > 60
    assert short.next_run(outcomes) is None
    assert "worth its cost" in (short.stop_reason(outcomes) or "")
    assert long.stop_reason(outcomes) is None


def test_strategies_on_fewer_devices_are_compared_by_device_time() -> None:
    many = Candidate(key="many", strategy="dp8", step_s=1.0, gpus=8)
    few = Candidate(key="few", strategy="dp4", step_s=1.5, gpus=4)
    chooser = Chooser([many, few])
    choice = chooser.next_run([])
    assert choice is not None
    assert choice.candidate == few
    assert chooser.best([ran("many", 1.0), ran("few", 1.5)]) == few


@pytest.mark.parametrize(
    ("given_candidates", "reason"),
    [
        ([], "no candidate"),
        ([Candidate(key="a", strategy="dp1", step_s=1.0)] * 2, "differ"),
        ([Candidate(key="a", strategy="dp1", step_s=0.0)], "more than 0 s"),
    ],
)
def test_candidates_that_cannot_be_compared_are_refused(given_candidates: list[Candidate], reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        Chooser(given_candidates)


def test_an_outcome_of_another_candidate_is_refused() -> None:
    with pytest.raises(RequestError, match="tp64"):
        Chooser(candidates([1.0, 2.0])).next_run([ran("tp64", 1.0)])


def test_the_first_run_is_the_row_that_ranks_first() -> None:
    rows = [
        Candidate(key="disliked", strategy="tp2 dp8 mbs1", step_s=1.0, dislike=0.03),
        Candidate(key="risky", strategy="tp1 dp16 mbs1", step_s=0.99, oom_probability=0.3),
        Candidate(key="first", strategy="tp4 dp4 mbs1", step_s=1.02),
        Candidate(key="safe", strategy="tp8 dp2 mbs1", step_s=1.03, oom_probability=0.0),
    ]
    keys = [choice.candidate.key for n in range(2) if (choice := Chooser(rows[n:]).next_run([])) is not None]
    assert keys == ["first", "first"]


def test_risk_counts_more_where_the_software_was_never_measured() -> None:
    rows = [
        Candidate(key="risky", strategy="tp1 dp16 mbs1", step_s=1.0, oom_probability=0.2),
        Candidate(key="safe", strategy="tp2 dp8 mbs1", step_s=1.05),
    ]
    choices = [Chooser(rows, measured=measured).next_run([]) for measured in (True, False)]
    assert [choice.candidate.key for choice in choices if choice is not None] == ["risky", "safe"]
