"""Choice of the next run: the run that is expected to shorten the remaining training by more than it costs.

The final choice is the fastest measured candidate. Before the first measurement, the first candidate of the ranking
runs, as in a leaderboard: by predicted time, risk of running out of memory and preferences. Later runs have the largest
knowledge gradient (expected fall of the final choice's time under ``posterior``), until it is worth less than the run
costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from forerun.search.order.worth import failed_start, odds_of
from forerun.search.tune.axes import axes_of
from forerun.search.tune.posterior import (
    USUAL,
    Spreads,
    agreement,
    belief_after,
    expected_improvement,
    prior_belief,
    risks_after,
)
from forerun.simulator.calibration import Belief
from forerun.simulator.score_table import Floats
from forerun.spaces.errors import RequestError

UNMEASURED_START = 5.0
"""Price of a failed first run relative to any failed start, for software without measured runs, whose risks are
uncertain. Chosen on the 21 groups that ``benchmarks/tune.py`` replays: one first run fails, with 1 six would."""
Status = Literal["ok", "oom", "failed", "hung", "stopped"]


class PredictedRow(Protocol):
    """A row of a leaderboard."""

    @property
    def name(self) -> str:
        """Text of the strategy."""

    @property
    def step_time_s(self) -> float:
        """Predicted seconds of a step."""

    @property
    def oom_risk(self) -> float:
        """Probability of running out of memory."""

    @property
    def gpus(self) -> int:
        """Devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A strategy that can be run.

    Attributes
    ----------
    key
        Identity among the candidates.
    strategy
        Text of the strategy (``tp4 dp2 mbs1 recompute=full``); its words are the axes that share errors.
    step_s
        Predicted seconds of a step.
    oom_probability
        Predicted probability of running out of memory, 0 to 1.
    gpus
        Number of devices.
    dislike
        Penalty by preferences of practice, as a share of a step.
    """

    key: str
    strategy: str
    step_s: float
    oom_probability: float = 0.0
    gpus: int = 1
    dislike: float = 0.0

    @classmethod
    def of_row(cls, row: PredictedRow, key: str | None = None, dislike: float = 0.0) -> "Candidate":
        """Return the candidate of a row; its key is the strategy by default."""
        return cls(
            key=row.name if key is None else key,
            strategy=row.name,
            step_s=row.step_time_s,
            oom_probability=row.oom_risk,
            gpus=row.gpus,
            dislike=dislike,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Result of a run.

    Attributes
    ----------
    key
        Candidate that ran.
    status
        "ok"; "oom": out of memory; "failed": another error; "hung": no progress; "stopped": ended early since it was
        clearly slower than the best.
    step_s
        Measured seconds of a step; None without a measured step.
    pending
        Whether the run has not finished: its step is the expected one.
    """

    key: str
    status: Status
    step_s: float | None = None
    pending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """Cost of a run: ``start_s`` seconds until the first step, then ``steps`` steps."""

    start_s: float = 120.0
    steps: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoice:
    """The next run: candidate, expected gain and cost.

    Attributes
    ----------
    candidate
        Strategy to run.
    gain
        Expected fall of the step time of the final choice, as a share of a step.
    gain_gpu_s
        The gain over the remaining training, in GPU-seconds; None if its length is unknown.
    cost_gpu_s
        Expected GPU-seconds of the run.
    oom_probability
        Probability of running out of memory, after the outcomes so far.
    reason
        One sentence for the user.
    """

    candidate: Candidate
    gain: float
    gain_gpu_s: float | None
    cost_gpu_s: float
    oom_probability: float
    reason: str


class Chooser:
    """Chooser of runs among candidates.

    Parameters
    ----------
    candidates
        Strategies in any order; keys are unique.
    training_s
        Duration of the training with the predicted best candidate, in s; None: unknown, and only a gain of 0 ends the
        search.
    cost
        Cost of a run.
    spreads
        Standard deviations of prediction errors, by shared properties.
    measured
        Whether runs of this software were ever measured; if not, a failed first run costs more.

    Raises
    ------
    RequestError
        No candidate, two candidates with one key, or a step time that is not above 0.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        training_s: float | None = None,
        cost: RunCost | None = None,
        spreads: Spreads = USUAL,
        measured: bool = True,
    ) -> None:
        self.candidates = tuple(candidates)
        self.training_s = training_s
        self.cost = cost or RunCost()
        self._place = {one.key: row for row, one in enumerate(self.candidates)}
        if not self.candidates:
            raise RequestError("there is no candidate to run")
        if len(self._place) < len(self.candidates):
            raise RequestError("candidates need keys that differ")
        if wrong := next((one for one in self.candidates if not one.step_s > 0), None):
            raise RequestError(f"a step takes more than 0 s, but {wrong.key} is predicted to take {wrong.step_s}")
        log_time = np.log([one.step_s for one in self.candidates])
        self._agreed = agreement([axes_of(one.strategy) for one in self.candidates])
        self._first_start = 1.0 if measured else UNMEASURED_START
        self._dislike = np.array([one.dislike for one in self.candidates])
        self._gpus = np.array([float(one.gpus) for one in self.candidates])
        self.prior = prior_belief(log_time, self._agreed, spreads)

    def next_run(self, outcomes: Sequence[RunOutcome]) -> RunChoice | None:
        """Choose the next run, or None to stop (``stop_reason``)."""
        choice = self._decide(outcomes)
        return choice if isinstance(choice, RunChoice) else None

    def stop_reason(self, outcomes: Sequence[RunOutcome]) -> str | None:
        """Explain in one sentence why no run is worth its cost; None if one is."""
        choice = self._decide(outcomes)
        return None if isinstance(choice, RunChoice) else choice

    def best(self, outcomes: Sequence[RunOutcome]) -> Candidate | None:
        """Return the candidate with the shortest measured device time; None without a measured run."""
        times = {row: seconds * self._gpus[row] for row, seconds in self._measured(outcomes).items()}
        return self.candidates[min(times, key=times.__getitem__)] if times else None

    def posterior(self, outcomes: Sequence[RunOutcome]) -> Belief:
        """Return the belief about step times after some runs."""
        finished = self._measured([one for one in outcomes if not one.pending])
        steps = finished | self._measured([one for one in outcomes if one.pending])
        return belief_after(self.prior, list(steps), np.log(list(steps.values())), pending=len(steps) - len(finished))

    def expected_s(self, key: str, outcomes: Sequence[RunOutcome]) -> float:
        """Return the expected seconds of a step of a candidate after some runs."""
        return float(self.posterior(outcomes).time_s()[self._place[key]])

    def as_expected(self, key: str, outcomes: Sequence[RunOutcome]) -> RunOutcome:
        """Return the expected outcome of a run after some others."""
        return RunOutcome(key=key, status="ok", step_s=self.expected_s(key, outcomes), pending=True)

    def oom_probabilities(self, outcomes: Sequence[RunOutcome]) -> Floats:
        """Return the probability of running out of memory of every candidate after some runs, shape N."""
        risk = np.array([one.oom_probability for one in self.candidates])
        failed = {self._place[one.key]: one.status == "oom" for one in outcomes if one.status == "oom" or _ran(one)}
        return risks_after(risk, self._agreed, list(failed), list(failed.values()))

    def __getitem__(self, key: str) -> Candidate:
        if key not in self._place:
            raise RequestError(f"no candidate has the key {key}")
        return self.candidates[self._place[key]]

    def _measured(self, outcomes: Sequence[RunOutcome]) -> dict[int, float]:
        """Return measured seconds of a step by row."""
        return {self._place[one.key]: one.step_s for one in outcomes if _ran(one) and one.step_s is not None}

    def _decide(self, outcomes: Sequence[RunOutcome]) -> RunChoice | str:
        """Return the next run, or the reason why no run is worth its cost."""
        done = {self[one.key].key for one in outcomes}
        left = [row for row, one in enumerate(self.candidates) if one.key not in done]
        if not left:
            return f"all {len(self.candidates)} candidates were run"
        risk = self.oom_probabilities(outcomes)
        belief = self.posterior(outcomes).costing(self._gpus)
        cost = self._costs(belief, risk)
        best = self.best(outcomes)
        if best is None:
            return self._first(left, belief, risk, cost)
        log_best = float(np.log(self._measured(outcomes)[self._place[best.key]] * best.gpus))
        gain = expected_improvement(belief, log_best) * (1 - risk)
        value = None if self.training_s is None else gain * self.training_s * best.gpus
        net = (gain if value is None else value - cost)[left]
        row = left[int(net.argmax())]
        faster = f"expected to shorten the step of the best run by {gain[row]:.2%}"
        if net.max() <= 0:
            return f"no further run is worth its cost: the next one is {faster} for {cost[row] / 3600:.2g} GPU-hours"
        return self._choice(row, gain, value, cost, risk, faster)

    def _first(self, left: Sequence[int], belief: Belief, risk: Floats, cost: Floats) -> RunChoice:
        """Choose the run before any step was measured."""
        worth = belief.time_s() * (1 + self._dislike + self._first_start * failed_start(odds_of(risk)))
        row = min(left, key=lambda one: float(worth[one]))
        gain = np.zeros(len(risk))
        gain[row] = belief.knowledge_gradients()[row] * (1 - risk[row])
        value = None if self.training_s is None else gain * self.training_s * self.candidates[row].gpus
        return self._choice(row, gain, value, cost, risk, f"best prediction at an OOM risk of {risk[row]:.1%}")

    def _costs(self, belief: Belief, risk: Floats) -> Floats:
        """Return the expected GPU-seconds of a run of every candidate; ``belief``: on GPU-seconds of a step."""
        return np.asarray(self._gpus * self.cost.start_s + (1 - risk) * self.cost.steps * belief.time_s())

    def _choice(
        self, row: int, gain: Floats, value: Floats | None, cost: Floats, risk: Floats, reason: str
    ) -> RunChoice:
        return RunChoice(
            candidate=self.candidates[row],
            gain=float(gain[row]),
            gain_gpu_s=None if value is None else float(value[row]),
            cost_gpu_s=float(cost[row]),
            oom_probability=float(risk[row]),
            reason=reason,
        )


def _ran(outcome: RunOutcome) -> bool:
    """Whether steps were measured."""
    return outcome.step_s is not None and outcome.status in ("ok", "stopped")
