"""Following of a run: its log is read while it trains, and a run that hangs or is too slow is ended.

A run hangs if no step follows for a number of predicted steps, and at least for a minute (checkpoints, stragglers).
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forerun.search.board.rows import GIB
from forerun.search.formats.logs import LogReport
from forerun.search.tune.launchers.contract import RunLauncher, RunPhase, Status
from forerun.search.tune.run import EXIT_CODE, STARTED, RunResult, RunState, RunStatus
from forerun.search.tune.secrets import line

ENOUGH = 3
"""Steps after the warm-up from which a median counts."""

READING = 10
"""Seconds between two readings of a log, for each second that a reading takes."""

Reader = Callable[[Path], LogReport]
OnSteps = Callable[[RunState, Sequence[float]], str]
"""Callback with the seconds of all steps after each new step; it returns the reason to end the run, or ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Waiting times of a driver, in s.

    Attributes
    ----------
    start_s
        For the first step of a run, until the duration of a start is known.
    silence_s
        Least time for the next step; else ``steps`` predicted steps (measured steps if longer).
    end_s
        For the end of a run after its last step, or after an error in its log.
    poll_s
        Between two polls.
    """

    start_s: float = 900.0
    silence_s: float = 60.0
    steps: float = 20.0
    end_s: float = 60.0
    poll_s: float = 2.0

    def first_step_s(self, started_s: Sequence[float], expected_s: float) -> float:
        """Return the seconds to wait for a first step; ``started_s``: times to the first step of earlier runs."""
        usual = min(self.start_s, 5 * max(started_s)) if started_s else self.start_s
        return max(usual, self.next_step_s(expected_s))

    def next_step_s(self, expected_s: float) -> float:
        """Return the seconds to wait for the next step."""
        return max(self.silence_s, self.steps * expected_s)

    def limit_s(self, started_s: Sequence[float], expected_s: float, steps: int) -> float:
        """Return the seconds after which a run is ended, regardless of its log."""
        return self.first_step_s(started_s, expected_s) + self.next_step_s(expected_s) + 5 * steps * expected_s


@dataclass(slots=True, kw_only=True)
class Follower:
    """Observer of one run.

    Attributes
    ----------
    first_step_s
        Seconds to wait for the first step.
    before_ending
        Called with the status and the reason before the run is ended early.
    on_steps
        See ``OnSteps``.
    """

    state: RunState
    launcher: RunLauncher
    read: Reader
    patience: Patience
    first_step_s: float
    before_ending: Callable[[RunState, RunStatus, str], None]
    on_steps: OnSteps
    clock: Callable[[], float] = time.time
    report: LogReport | None = None
    _began: float | None = None
    _first: float | None = None
    _last: float | None = None
    _error: float | None = None
    _size: int = -1
    _next_read: float = 0.0
    _slow: tuple[RunStatus, str] | None = None

    @property
    def steps(self) -> int:
        """Steps in its log so far."""
        return 0 if self.report is None else len(self.report.step_times_s)

    def look(self) -> RunResult | None:
        """Read new lines of the log; return the result of a finished run."""
        status = self.launcher.status(self.state)
        self._read(now=status.phase is RunPhase.ENDED)
        if status.phase is RunPhase.WAITING:
            return None
        if self._began is None:
            self._began = _changed(self.state.folder / STARTED) or self.clock()
        if status.phase is RunPhase.RUNNING:
            verdict = self.state.verdict or self._verdict()
            if verdict is None:
                return None
            return self.end(*verdict)
        return self.result(status)

    def end(self, status: RunStatus, text: str) -> RunResult:
        """End the run early."""
        if status == "hung" and self.report is not None and self.report.outcome == "failed":
            status, text = "failed", " ".join(self.report.evidence)  # one rank died, the others wait for it
        self.before_ending(self.state, status, text)
        self.launcher.cancel(self.state)
        self._read(now=True)
        return self.result(Status(phase=RunPhase.ENDED))

    def result(self, status: Status) -> RunResult:
        """Judge a finished run."""
        report = self.report
        steps = () if report is None else report.step_times_s
        counted = 0 if report is None else len(steps) - report.skipped
        verdict, text = self._judged(status, counted)
        started = _changed(self.state.folder / STARTED)  # None: the user put the log there
        counts = counted >= self._enough and verdict in ("ok", "stopped")
        return RunResult(
            status=verdict,
            step_s=report.step_s if report is not None and counts else None,
            peak_gib=None if report is None or report.peak_bytes is None else report.peak_bytes / GIB,
            steps=len(steps),
            start_s=None if self._first is None or started is None else max(0.0, self._first - started),
            seconds=self._seconds(),
            text=line(text),
        )

    def _judged(self, status: Status, counted: int) -> tuple[RunStatus, str]:
        """Return the status of a finished run, and its reason."""
        outcome = "no progress" if self.report is None else self.report.outcome
        evidence = " ".join(self.report.evidence) if self.report is not None else ""
        well = self._done or status.exit_code == 0 or (status.exit_code is None and outcome == "ok")
        if outcome == "oom" and not (self._done and status.exit_code == 0):
            return "oom", evidence
        if self.state.verdict is not None and not self._done:
            return self.state.verdict
        if counted >= self._enough and well:
            return "ok", f"{counted} steps after the warm-up"
        code = "without an exit code" if status.exit_code is None else f"with exit code {status.exit_code}"
        if outcome == "failed":
            return "failed", evidence
        return "failed", f"it ended {code} and {self.steps} steps; {status.text or self._last_line()}"

    @property
    def _enough(self) -> int:
        """Steps after the warm-up needed for a measurement."""
        return min(ENOUGH, max(1, self.state.run.steps // 2))

    @property
    def _done(self) -> bool:
        return self.report is not None and len(self.report.step_times_s) >= self.state.run.steps

    def _last_line(self) -> str:
        """Return the end of the log, which may contain the reason for missing steps."""
        with suppress(OSError):
            lines = self.state.log.read_text(errors="replace").strip().splitlines()
            return f"its log ends: {lines[-1]}" if lines else "its log is empty"
        return "it has no log"

    def _verdict(self) -> tuple[RunStatus, str] | None:
        """Return the status and the reason to end a run now; None if it should continue."""
        now = self.clock()
        assert self._began is not None
        if self._error is not None and now - self._error > self.patience.end_s:
            assert self.report is not None
            return "failed", " ".join(self.report.evidence)
        if self._done and self._last is not None and now - self._last > self.patience.end_s:
            return "ok", f"it went on after its {self.state.run.steps} steps"
        if now - self._began > self.state.run.limit_s:
            return "stopped", f"it was not over after {self.state.run.limit_s:.0f} s"
        if self._last is None:
            if now - self._began > self.first_step_s:
                return "hung", f"no step in {self.first_step_s:.0f} s"
            return None
        expected_s = self.state.run.expected_s
        if self.report is not None and self.report.step_s is not None:
            expected_s = max(expected_s, self.report.step_s)
        silence_s = self.patience.next_step_s(expected_s)
        if not self._done and now - self._last > silence_s:
            return (
                "hung",
                f"no step in {silence_s:.0f} s after step {len(self.report.step_times_s) if self.report else 0}",
            )
        return self._slow

    def _read(self, *, now: bool) -> None:
        """Read the log if it has grown; a long log only from time to time, unless ``now``."""
        try:
            size = self.state.log.stat().st_size
        except OSError:
            return
        if size == self._size or not (now or time.monotonic() >= self._next_read):
            return
        began = time.monotonic()
        self._size, before = size, 0 if self.report is None else len(self.report.step_times_s)
        self.report = self.read(self.state.log)
        # Unread lines must not count as silence.
        pause_s = min(READING * (time.monotonic() - began), self.patience.silence_s / 4)
        self._next_read = time.monotonic() + pause_s
        steps, changed = self.report.step_times_s, _changed(self.state.log) or self.clock()
        if len(steps) != before:  # fewer: the training began anew
            if self._first is None:
                # The last write minus the time of the steps after the first, if the first reading found several steps.
                self._first = changed - math.fsum(steps[1:])
            self._last, self._error = changed, None
            if reason := self.on_steps(self.state, steps):
                self._slow = ("stopped", reason)
        elif self.report.outcome in ("oom", "failed") and self._error is None:
            self._error = changed

    def _seconds(self) -> float:
        """Return the wall time of the run; of a log that the user put there, the time of its steps."""
        if self._began is None or not (self.state.folder / STARTED).exists():
            return 0.0 if self.report is None else math.fsum(self.report.step_times_s)
        ended = _changed(self.state.folder / EXIT_CODE) or self.clock()
        if self.state.verdict is None and not (self.state.folder / EXIT_CODE).exists():
            ended = _changed(self.state.log) or ended  # killed while no driver ran
        return max(0.0, ended - self._began)


def _changed(path: Path) -> float | None:
    """Return the time of the last write to a file; None if it does not exist."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
