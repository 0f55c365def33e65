"""Launch files of a run: files of ``forerun export`` for a few steps on mock data, or the user's trainer."""

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path

from forerun.search.formats.contract import Files
from forerun.search.formats.express import launch_in
from forerun.search.formats.job import NO_JOB, Job
from forerun.search.formats.launch_of import launch_of
from forerun.search.formats.launchers import LAUNCH, TORCHRUN, scripts
from forerun.search.tune.axes import USUAL_CHOICES, axes_of
from forerun.search.tune.launchers.processes import filled
from forerun.search.tune.secrets import redacted
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchWriter:
    """Writes the launch files of strategies.

    Attributes
    ----------
    context
        Training and its cluster.
    steps
        Steps of a run.
    trainer
        The user's program with its arguments as shell text. With fields like ``{tp}`` it gets only their values as
        arguments; without fields it replaces the framework's program. Empty: the framework's program.
    format_name
        Format to write; None: the framework's first format.
    job
        Options of the queue.
    """

    context: Context
    steps: int
    trainer: str = ""
    format_name: str | None = None
    job: Job = NO_JOB

    def full(self) -> "LaunchWriter":
        """Return the writer of final launch files, with the steps of ``forerun export``."""
        return dataclasses.replace(self, steps=NO_JOB.steps)

    def files(self, strategy: Strategy, folder: Path, name: str) -> Files:
        """Return the files that start a strategy from ``folder``; ``name``: free text in the files.

        Raises
        ------
        RequestError
            No format can express the strategy with a launch script, or the trainer has an unknown field.
        """
        job = dataclasses.replace(self.job, folder=str(folder.absolute()), steps=self.steps, trainer=self.trainer)
        if "{" in self.trainer.replace("${", ""):
            return self._own(strategy, dataclasses.replace(job, trainer=""), name)
        item, files = launch_of(self.context, strategy, name=name, format_name=self.format_name, job=job)
        if LAUNCH not in files:
            raise RequestError(f"{item} has no launch script for {strategy}; name a format with --format")
        return files

    def _own(self, strategy: Strategy, job: Job, name: str) -> Files:
        """Return scripts that start the user's trainer with the strategy as arguments."""
        launch = dataclasses.replace(launch_in(self.context, strategy, name=name), job=job)
        workload, axes = self.context.workload, axes_of(str(strategy))
        values: dict[str, object] = {
            **{axis: getattr(strategy, axis) for axis in ("dp", "tp", "pp", "cp", "ep", "etp", "vpp", "mbs", "zero")},
            **{axis: axes.get(axis, USUAL_CHOICES[axis]) for axis in ("schedule", "recompute", "split")},
            "sp": int(strategy.sp),
            "microbatches": launch.microbatches,
            "global_batch": workload.global_batch,
            "seq_len": workload.seq_len,
            "steps": self.steps,
            "strategy": strategy,
        }
        return scripts(launch, "your trainer", [*TORCHRUN, filled(self.trainer, values)])


def trainer_text(words: str | None) -> str:
    """Return the shell text of a trainer for scripts in other folders.

    Its file has an absolute path, and values of secret environment variables are the names of these variables.

    Raises
    ------
    RequestError
        Its first word is not the name of a file.
    """
    if words is None:
        return ""
    first, *more = words.split(None, 1)
    path = Path(first.strip("'\""))
    if not path.is_file():
        raise RequestError(f"--trainer {first} is not a file; write the program first, then its arguments")
    return " ".join([shlex.quote(str(path.absolute())), *map(redacted, more)])
