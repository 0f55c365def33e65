"""A tuning run as a value: strategy, reason and result."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from forerun.search.tune.choice import RunOutcome

RunStatus = Literal["ok", "oom", "failed", "hung", "stopped", "interrupted"]
SCRIPT, LOG, EXIT_CODE, STARTED = "run.sh", "train.log", "exit_code", "started"
"""Files of a run's folder: its script, its log, its exit code, and the folder that only the first start can make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRun:
    """One short measured run of a strategy.

    Attributes
    ----------
    number
        Place among the runs of the folder, from 1.
    strategy
        Text of the strategy.
    rank
        Its place on the leaderboard of the search.
    gpus, nodes
        Devices and nodes that it occupies.
    steps
        Steps to train.
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
        Why it is run, in one sentence.
    cost_s
        Expected seconds of the whole run; ``limit_s``: after so many it is ended.
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

    def to_record(self) -> dict[str, Any]:
        """Return the run as plain data."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "TuningRun":
        """Return the run of ``to_record``; further keys are passed over."""
        return cls(**{name: record[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Result of a run.

    Attributes
    ----------
    status
        "ok"; "oom"; "failed"; "hung"; "stopped": ended early since it was clearly slower or the budget was spent;
        "interrupted": ended by the user, and may be run anew.
    step_s
        Median seconds of the steps after the warm-up; None without such steps.
    peak_gib
        Largest peak memory in the log, in GiB; None where it has none.
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
        """Whether the run gave a step time that counts."""
        return self.step_s is not None and self.status in ("ok", "stopped")

    def to_record(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "RunResult":
        """Return the result of ``to_record``; further keys are passed over."""
        return cls(**{name: record[name] for name in cls.__dataclass_fields__})


@dataclass(slots=True, kw_only=True)
class RunState:
    """A run of a folder as far as it has come.

    Attributes
    ----------
    handle
        Identifier of the launcher; None: it may not have been launched.
    verdict
        Status and reason of an early end that has begun; None: there is none.
    """

    run: TuningRun
    folder: Path
    handle: str | None = None
    verdict: tuple[RunStatus, str] | None = None
    result: RunResult | None = None

    @property
    def log(self) -> Path:
        """Path of its log."""
        return self.folder / LOG

    @property
    def spent_gpu_s(self) -> float:
        """GPU-seconds that it took; 0 while it is not over."""
        return 0.0 if self.result is None else self.result.seconds * self.run.gpus

    @property
    def outcome(self) -> RunOutcome | None:
        """Outcome for the choice of the next run; None where it is not over, or was interrupted."""
        result = self.result
        if result is None or result.status == "interrupted":
            return None
        status = result.status if result.status != "stopped" or result.measured else "failed"
        return RunOutcome(
            key=self.run.strategy,
            status=status,
            step_s=result.step_s if result.measured else None,
        )
