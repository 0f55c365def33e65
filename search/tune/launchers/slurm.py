"""Tuning runs as Slurm batch jobs, identified by their job names."""

import math
import shlex
import shutil
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from forerun.search.formats.launchers import SLURM
from forerun.search.tune.launchers.contract import PREFIX, RunLauncher, RunPhase, unique_name
from forerun.search.tune.run import SCRIPT, STARTED, RunState
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text

if TYPE_CHECKING:
    from forerun.search.formats.contract import Files

BATCH, OUTPUT = "run.sbatch", "slurm.out"
"""Batch file of a run, and Slurm's output."""
QUEUED = ("PENDING", "CONFIGURING")
WAITING = (*QUEUED, "REQUEUED", "SUSPENDED", "RESV_DEL_HOLD")
ANSWER_S, CANCEL_S = 60.0, 90.0
GONE = "gone"
"""Handle of a run whose job ended while no driver ran."""


class SlurmLauncher(RunLauncher):
    """Launcher that submits the batch file of ``forerun export`` from the script of the run.

    Parameters
    ----------
    timed
        Whether the user states a time limit for every job; else each run has its own limit.
    """

    name = "slurm"
    command = f'FOLDER="$PWD" bash {SLURM}'
    late_s = 15.0

    def __init__(self, *, timed: bool = False) -> None:
        super().__init__()
        self._timed = timed

    def check(self) -> None:
        """Check that Slurm's programs are installed and that its queue answers.

        Raises
        ------
        RequestError
            A program is missing, or the queue does not answer.
        """
        missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
        if missing:
            raise RequestError(
                f"--launcher slurm needs {' and '.join(missing)}, which is not here; run it on a login node, "
                "or use --launcher dry"
            )
        _queue("--me")

    def place(self) -> str:
        """Describe the place of launches."""
        return "by sbatch"

    def slots(self, state: RunState, active: int) -> int:
        """Return the number of running runs plus runs that fit on idle nodes.

        While a run waits in the queue no other is added: the nodes that it will take may still be idle.
        """
        queued = _slurm(["squeue", "--me", "--noheader", f"--states={','.join(QUEUED)}", "--format=%j"])
        if queued.returncode != 0 or any(name.startswith(PREFIX) for name in queued.stdout.split()):
            return max(1, active)
        done = _slurm(["sinfo", "--noheader", "--states=idle", "--format=%D"])
        idle = sum(int(word) for word in done.stdout.split() if word.isdecimal()) if done.returncode == 0 else 0
        return max(1, active + idle // state.run.nodes)

    def prepare(self, state: RunState, files: "Files") -> None:
        """Write the files of a run and its batch file, with the directives of the export."""
        if SLURM not in files:
            raise RequestError("this format has no batch file of Slurm; name another one with --format")
        super().prepare(state, files)
        directives = [line for line in files[SLURM].splitlines() if line.startswith("#SBATCH ")]
        script = shlex.quote(str(state.folder.absolute() / SCRIPT))
        write_text(state.folder / BATCH, "\n".join(["#!/usr/bin/env bash", *directives, f"exec bash {script}", ""]))

    def start(self, state: RunState) -> str:
        """Submit the batch file, unless a job with its name is queued or has begun."""
        name = unique_name(state)
        if queued := _queue(f"--name={name}"):
            return queued[0]
        if (state.folder / STARTED).exists():
            return GONE
        time_limit = [] if self._timed else [f"--time={math.ceil(state.run.limit_s / 60) + 1}"]
        folder = state.folder.absolute()
        words = ["sbatch", "--parsable", "--no-requeue", f"--job-name={name}", f"--output={folder / OUTPUT}"]
        done = _slurm([*words, *time_limit, str(folder / BATCH)])
        if done.returncode != 0:
            raise RequestError(f"sbatch refuses {folder / BATCH}: {_line(done.stderr)}")
        return done.stdout.strip().split(";")[0]

    def phase(self, state: RunState) -> tuple[RunPhase, str]:
        """Return the phase of a run from its job's queue entry."""
        if state.handle == GONE:
            return RunPhase.ENDED, "its job ended without an exit code"
        word = self._state(state)
        if word is None:
            return RunPhase.ENDED, f"Slurm says {self._account(state)}"
        return RunPhase.WAITING if word in WAITING else RunPhase.RUNNING, ""

    def cancel(self, state: RunState) -> None:
        """Cancel the job, and wait until it has left the queue."""
        _slurm(["scancel", str(state.handle)])
        ends_at = time.monotonic() + CANCEL_S
        while self._state(state) is not None and time.monotonic() < ends_at:
            time.sleep(1.0)

    def _state(self, state: RunState) -> str | None:
        """Return the state of a job in the queue; None if it is not queued.

        If the queue does not answer, the state is RUNNING.
        """
        done = _slurm(["squeue", "--noheader", "--states=all", f"--jobs={state.handle}", "--format=%T"])
        if done.returncode != 0:
            return None if "Invalid job id" in done.stderr else "RUNNING"
        word = (done.stdout.split() or [""])[0]
        return word if word in (*WAITING, "RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING", "STOPPED") else None

    def _account(self, state: RunState) -> str:
        """Return the final state of a job from Slurm's accounting."""
        done = _slurm(["sacct", "--noheader", "--allocations", f"--jobs={state.handle}", "--format=State,ExitCode"])
        return " ".join(done.stdout.split()) or f"nothing of job {state.handle}; see {state.folder / OUTPUT}"


def _queue(selection: str) -> list[str]:
    """Return the numbers of queued jobs.

    Raises
    ------
    RequestError
        The queue does not answer.
    """
    done = _slurm(["squeue", "--noheader", selection, "--format=%i"])
    if done.returncode != 0:
        raise RequestError(f"squeue does not answer: {_line(done.stderr)}")
    return done.stdout.split()


def _slurm(words: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run a Slurm program; a missing program, or one that times out, has exit code 1."""
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(words, capture_output=True, text=True, timeout=ANSWER_S, stdin=subprocess.DEVNULL)
    return subprocess.CompletedProcess(words, 1, "", f"{words[0]} does not answer")


def _line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no reason given"
