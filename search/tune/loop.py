"""The loop of a tuning: choose a run, launch it, follow its log, record it, until another run no longer pays."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from forerun.search.board.rows import SECONDS_PER_HOUR
from forerun.search.formats.logs import read_log
from forerun.search.tune.candidates import TuningCandidates
from forerun.search.tune.choice import Chooser, RunChoice, RunCost, RunOutcome
from forerun.search.tune.folder import RUNS, TuneFolder
from forerun.search.tune.following import Follower, Patience
from forerun.search.tune.launchers import RunLauncher
from forerun.search.tune.request import TuningRequest
from forerun.search.tune.results import write_runs
from forerun.search.tune.run import RunResult, RunState, RunStatus, TuningRun
from forerun.search.tune.study import StudyTrials
from forerun.spaces.errors import RequestError
from forerun.spaces.units import format_seconds

START_S = 120.0
"""Expected seconds until the first step, before any measured start."""
USUAL = Patience()
"""Patience of a driver."""
SOON_S = 0.2
"""Seconds between two polls while steps arrive."""


class TuningWatch:
    """Observer of a tuning that consents to launches; this base class always consents and prints nothing."""

    def searched(self, candidates: TuningCandidates) -> None:
        """Receive the rows among which runs are chosen."""

    def approve(self, plan: Sequence[str]) -> bool:
        """Return whether a run may be launched; ``plan``: lines with its place, reason, duration and cost."""
        return True

    def launched(self, state: RunState, launcher: RunLauncher) -> None:
        """Receive a run that was launched now or by an earlier driver."""

    def stepped(self, state: RunState, steps: Sequence[float]) -> None:
        """Receive the seconds of all steps of a run after new lines in its log."""

    def ended(self, state: RunState) -> None:
        """Receive a finished and recorded run."""


@dataclass(slots=True, kw_only=True)
class Tuner:
    """Driver of the runs of one folder, until another run no longer pays or a limit is reached.

    Attributes
    ----------
    stopped
        Why no further run was launched, in one sentence.
    """

    tuning: TuningRequest
    folder: TuneFolder
    candidates: TuningCandidates
    watch: TuningWatch
    trials: StudyTrials
    patience: Patience = field(default_factory=lambda: USUAL)
    clock: Callable[[], float] = time.time
    stopped: str = ""
    _active: dict[int, Follower] = field(default_factory=dict)

    def run(self) -> None:
        """Launch, follow and record runs.

        Raises:
            RequestError: a run cannot be launched.
            KeyboardInterrupt: interrupted, after running runs were ended or left running.
        """
        try:
            self._take_up()
            while True:
                while self._launch_next():
                    pass
                if not self._active:
                    return
                delay_s = self.patience.poll_s if not self._look() else min(self.patience.poll_s, SOON_S)
                time.sleep(delay_s)
        except KeyboardInterrupt:
            if self.tuning.on_interrupt == "cancel":
                self._end_all("interrupted", "ended by the user")
            raise

    def _take_up(self) -> None:
        """Continue the runs of an earlier driver."""
        write_runs(self.folder, self.candidates)
        for state in list(self.folder.states.values()):
            if state.result is None:
                self._launch(state)
            else:
                self.trials.ended(state)

    def _launch_next(self) -> bool:
        """Launch the next run; return whether one was launched and another may follow."""
        if not self.stopped and len(self._states()) >= self.tuning.limits.runs:
            self.stopped = f"the limit --runs {self.tuning.limits.runs} is reached"
        if self.stopped:
            return False
        chooser = self.chooser()
        choice = self._choice(chooser)
        run = None if choice is None else self._planned(choice, chooser)
        if run is None:
            return False
        state = RunState(run=run, folder=self.folder.path / RUNS / run.name)
        if self._active and len(self._active) >= self.tuning.launcher.slots(state, len(self._active)):
            return False
        if not self.watch.approve(self._plan(state)):
            self.stopped = "you declined the next run"
            return False
        self._launch(self.folder.choose(run))
        return True

    def _launch(self, state: RunState) -> None:
        """Start a run, or return it if it was already started."""
        row = self.candidates.rows.get(state.run.strategy)
        if row is None:
            raise RequestError(f"run {state.run.name} is {state.run.strategy}, which is no longer a candidate")
        self.trials.trial_of(state)
        if state.handle is None:
            name = f"{self.candidates.setting.context.model.name} run {state.run.name}"
            self.tuning.launcher.prepare(state, self.candidates.writer.files(row.strategy, state.folder, name))
            self.folder.launched(state, self.tuning.launcher.start(state))
        self._active[state.run.number] = Follower(
            state=state,
            launcher=self.tuning.launcher,
            read=partial(read_log, pattern=self.tuning.log_pattern),
            patience=self.patience,
            first_step_s=self.patience.first_step_s(self._starts(), state.run.expected_s),
            before_ending=self.folder.ending,
            on_steps=self._on_steps,
            clock=self.clock,
        )
        self.watch.launched(state, self.tuning.launcher)

    def _look(self) -> bool:
        """Poll every running run and record finished ones; return whether any made progress."""
        before = [(number, one.steps) for number, one in self._active.items()]
        for number, follower in list(self._active.items()):
            result, until_s = follower.look(), self.tuning.limits.until_s
            if result is None and until_s is not None and self.clock() > until_s:
                result = follower.end("stopped", "the time of --until has come")
            if result is not None:
                self._finish(number, follower, result)
        return before != [(number, one.steps) for number, one in self._active.items()]

    def _finish(self, number: int, follower: Follower, result: RunResult) -> None:
        """Record a finished run."""
        self.folder.ended(follower.state, result)
        del self._active[number]
        write_runs(self.folder, self.candidates)
        self.trials.ended(follower.state)
        self.watch.ended(follower.state)

    def _end_all(self, status: RunStatus, text: str) -> None:
        """End every running run."""
        for number, follower in list(self._active.items()):
            with suppress(RequestError):
                self._finish(number, follower, follower.look() or follower.end(status, text))

    def _on_steps(self, state: RunState, steps: Sequence[float]) -> str:
        self.watch.stepped(state, steps)
        return self.trials.stepped(state, steps)

    def _states(self) -> list[RunState]:
        """Return the runs that were not interrupted."""
        states = self.folder.states.values()
        return [state for state in states if state.result is None or state.result.status != "interrupted"]

    def _starts(self) -> list[float]:
        """Return the times to the first step of earlier runs, in s."""
        results = [state.result for state in self._states() if state.result is not None]
        return [result.start_s for result in results if result.start_s is not None]

    def outcomes(self) -> list[RunOutcome]:
        """Return the outcomes of finished runs."""
        return [outcome for state in self._states() if (outcome := state.outcome) is not None]

    def chooser(self) -> Chooser:
        """Return the choice of runs among the candidates."""
        started_s = self._starts()
        start_s = max(started_s) if started_s else START_S
        return Chooser(
            self.candidates.of_choice(),
            training_s=self.candidates.training_s,
            cost=RunCost(start_s=start_s, steps=self.candidates.writer.steps),
            measured=self.candidates.measured,
        )

    def _choice(self, chooser: Chooser) -> RunChoice | None:
        """Choose the next run; None if no run is worth its cost."""
        over = self.outcomes()
        active = [one.state.run.strategy for one in self._active.values()]
        outcomes = over + [chooser.as_expected(key, over) for key in active]
        choice = chooser.next_run(outcomes)
        if choice is None and not self._active:
            self.stopped = chooser.stop_reason(outcomes) or ""
        return choice

    def _planned(self, choice: RunChoice, chooser: Chooser) -> TuningRun | None:
        """Return the run of a choice within the remaining budget; None if it is too small."""
        row, writer = self.candidates.rows[choice.candidate.key], self.candidates.writer
        expected_s = chooser.expected_s(choice.candidate.key, self.outcomes())
        cost_s = chooser.cost.start_s + writer.steps * expected_s
        limit_s = self._left_s(row.gpus, self.patience.limit_s(self._starts(), expected_s, writer.steps))
        if limit_s < cost_s:
            what = "GPU-hours" if self.tuning.limits.gpu_hours is not None else "time before --until"
            self.stopped = f"the next run needs about {cost_s / 60:.0f} min, for which too few {what} are left"
            return None
        return TuningRun(
            number=max(self.folder.states, default=0) + 1,
            strategy=choice.candidate.key,
            rank=row.rank or 0,
            gpus=row.gpus,
            nodes=-(-row.gpus // self.candidates.setting.context.cluster.devices_per_node),
            steps=writer.steps,
            predicted_s=row.step_time_s,
            expected_s=expected_s,
            predicted_peak_gib=row.peak_memory_gib,
            risk=choice.oom_probability,
            gain=choice.gain,
            reason=choice.reason,
            cost_s=cost_s,
            limit_s=limit_s,
        )

    def _plan(self, state: RunState) -> list[str]:
        """Describe a run before its launch in lines: place, reason, duration and cost."""
        run, limits, spent = state.run, self.tuning.limits, self.folder.spent_gpu_s / SECONDS_PER_HOUR
        hours, most = run.cost_s * run.gpus / SECONDS_PER_HOUR, run.limit_s * run.gpus / SECONDS_PER_HOUR
        cap = "" if limits.gpu_hours is None else f" of {limits.gpu_hours:.3g}"
        return [
            f"run {run.name} of at most {limits.runs}: {run.strategy}",
            f"  why: {run.reason}; row {run.rank}, OOM risk {run.risk:.1%}",
            f"  where: {self.tuning.launcher.place()}, {run.gpus} GPUs on {run.nodes} node{'s' * (run.nodes != 1)}, "
            f"folder {state.folder}",
            f"  how long: {run.steps} steps of about {format_seconds(run.expected_s)}, with the start about "
            f"{format_seconds(run.cost_s)}; ended after {format_seconds(run.limit_s)} at the latest",
            f"  GPU-hours: about {hours:.2g}, at most {most:.2g}; {spent:.2g}{cap} spent",
        ]

    def _left_s(self, gpus: int, most_s: float) -> float:
        """Return the time limit of a run in s: ``most_s``, or the remaining budget."""
        limits = self.tuning.limits
        if limits.gpu_hours is not None:
            reserved = sum(one.state.run.limit_s * one.state.run.gpus for one in self._active.values())
            most_s = min(most_s, (limits.gpu_hours * SECONDS_PER_HOUR - self.folder.spent_gpu_s - reserved) / gpus)
        if limits.until_s is not None:
            most_s = min(most_s, limits.until_s - self.clock())
        return most_s
