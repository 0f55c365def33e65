"""A tuning run as a value: strategy, reason and result."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from forerun.search.tune.choice import RunOutcome

RunStatus = Literal["ok", "oom", "failed", "hung", "stopped", "interrupted"]
SCRIPT, LOG, EXIT_CODE, STARTED = "run.sh", "train.log", "exit_code", "started"
"""Files of a run's folder: its script, its log, its exit code, and the folder that only the first start can create."""


class Recorded:
    """A dataclass that a journal keeps as plain data."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_record(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Return the value of ``to_record``; further keys are ignored."""
        return cls(**{name: record[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRun(Recorded):
    """One short measured run of a strategy.

    Attributes
    ----------
    number
        Number among the runs of the folder, from 1.
    strategy
        Text of the strategy.
    rank
        Rank on the leaderboard of the search.
    gpus, nodes
        Devices and nodes of the run.
    steps
        Number of training steps.
    predicted_s
        Predicted seconds of a step, before any run was measured.
    expected_s
        Expected seconds of a step after the runs so far.
    predicted_peak_gib
        Predicted peak memory of the fullest device, in GiB.
    risk
        Probability of running out of memory.
    gain
        Expected fall of the step time of the final choice, as a share of a step.
    reason
        Reason of the run, in one sentence.
    cost_s
        Expected seconds of the whole run; ``limit_s``: seconds after which it is ended.
    """

    number: int
    strategy: str
    rank: int
    gpus: int
    nodes: int
    steps: int
    predicted_s: float
    expected_s: float
    predicted_peak_gib: float
    risk: float
    gain: float
    reason: str
    cost_s: float
    limit_s: float

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.number:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Recorded):
    """Result of a run.

    Attributes
    ----------
    status
        "ok"; "oom"; "failed"; "hung"; "stopped": ended early since it was clearly slower or the budget was spent;
        "interrupted": ended by the user, and may be run anew.
    step_s
        Median seconds of the steps after the warm-up; None without such steps.
    peak_gib
        Largest peak memory in the log, in GiB; None if the log has none.
    steps
        Steps in the log.
    start_s
        Seconds until the first step; None without a step.
    seconds
        Wall time of the run.
    text
        Reason of the status, in one line.
    """

    status: RunStatus
    step_s: float | None
    peak_gib: float | None
    steps: int
    start_s: float | None
    seconds: float
    text: str = ""

    @property
    def measured(self) -> bool:
        """Whether the run has a valid step time."""
        return self.step_s is not None and self.status in ("ok", "stopped")


@dataclass(slots=True, kw_only=True)
class RunState:
    """State of a run of a folder.

    Attributes
    ----------
    handle
        Identifier of the launcher; None: it may not have been launched.
    verdict
        Status and reason of an early end that has begun; None: no early end.
    """

    run: TuningRun
    folder: Path
    handle: str | None = None
    verdict: tuple[RunStatus, str] | None = None
    result: RunResult | None = None

    @property
    def log(self) -> Path:
        """Path of the run's log."""
        return self.folder / LOG

    @property
    def spent_gpu_s(self) -> float:
        """GPU-seconds of the run; 0 before its end."""
        return 0.0 if self.result is None else self.result.seconds * self.run.gpus

    @property
    def outcome(self) -> RunOutcome | None:
        """Outcome for the choice of the next run; None for a running or interrupted run."""
        result = self.result
        if result is None or result.status == "interrupted":
            return None
        status = result.status if result.status != "stopped" or result.measured else "failed"
        return RunOutcome(
            key=self.run.strategy,
            status=status,
            step_s=result.step_s if result.measured else None,
        )
