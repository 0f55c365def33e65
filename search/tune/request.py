"""The request of a tuning: training, launcher, limits and options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from forerun.search.formats.job import NO_JOB, Job
from forerun.search.request.request import Request
from forerun.search.tune.candidates import TuningCandidates
from forerun.search.tune.launchers import RunLauncher

OnInterrupt = Literal["cancel", "leave"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningLimits:
    """Limits of a tuning.

    Attributes
    ----------
    runs
        Most launched runs, including runs of earlier drivers of the folder.
    gpu_hours
        Most GPU-hours of all runs; None: no limit.
    until_s
        Time at which the last run must end, in seconds since 1970; None: no limit.
    """

    runs: int = 4
    gpu_hours: float | None = None
    until_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRequest:
    """Training to tune, and the options of the tuning.

    Attributes
    ----------
    request
        Training and its machine.
    launcher
        Way to launch runs.
    folder
        Folder of the runs.
    limits
        Limits of all runs together.
    steps
        Steps of a run.
    trainer
        The user's program and its arguments (see ``launch_files``); None: the framework's program.
    format_name
        Format of the launch files; None: the framework's first format.
    job
        Options of the queue.
    log_pattern
        Regular expression with a group ``step_s`` or ``step_ms``; None: the lines of frameworks.
    baseline
        Step time of the current run (``9.3``, ``210ms``), or its log; None: no comparison.
    resume
        Whether a tuning in the folder is continued.
    on_interrupt
        Whether an interrupt ends the running runs, or leaves them running.
    """

    request: Request
    launcher: RunLauncher
    folder: Path
    limits: TuningLimits = field(default_factory=TuningLimits)
    steps: int = 20
    trainer: str | None = None
    format_name: str | None = None
    job: Job = NO_JOB
    log_pattern: str | None = None
    baseline: str | None = None
    resume: bool = False
    on_interrupt: OnInterrupt = "cancel"

    def inputs(self, candidates: TuningCandidates) -> Mapping[str, Any]:
        """Return the inputs that must be unchanged when a tuning is continued."""
        return {
            **candidates.setting.request.to_json(),
            "launcher": self.launcher.name,
            "steps": self.steps,
            "trainer": candidates.writer.trainer,
            "launch format": self.format_name,
        }
