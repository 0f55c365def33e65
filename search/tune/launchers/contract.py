"""Contract of launchers: start a run at most once, report its phase, end it.

Every launcher starts the script of a run (``run.sh``), which first creates the folder ``started``. A second start of
the run finds this folder and ends at once, so a driver that was killed between a launch and its record launches no run
twice.
"""

import hashlib
import time
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from forerun.search.tune.run import EXIT_CODE, LOG, SCRIPT, STARTED, RunState
from forerun.spaces.closing import Closing
from forerun.spaces.files import write_text

if TYPE_CHECKING:
    from forerun.search.formats.contract import Files

STARTED_ALREADY = 75
"""Exit code of the script of a run that was started before (EX_TEMPFAIL of sysexits.h)."""
PROCESS = f"{STARTED}/process"
"""File with the process id of the script, the ticks at which it began (Linux), and its host."""
PREFIX = "forerun-"
"""Begin of the names of runs in queues and clusters."""
COMMAND = "@COMMAND@"
_SCRIPT = f"""\
#!/usr/bin/env bash
# Written by forerun tune. It starts the run only once, and leaves {LOG} and {EXIT_CODE} in this folder.
cd "$(dirname "${{BASH_SOURCE[0]}}")" || exit 1
mkdir {STARTED} 2> /dev/null || exit {STARTED_ALREADY}
echo "$$ $(cut -d ' ' -f 22 "/proc/$$/stat" 2> /dev/null || echo 0) $(hostname)" > {PROCESS}.new
mv {PROCESS}.new {PROCESS}
{COMMAND} > {LOG} 2>&1 < /dev/null
echo "$?" > {EXIT_CODE}.new
mv {EXIT_CODE}.new {EXIT_CODE}
"""


class RunPhase(Enum):
    """Enumeration of the phases of a run."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Phase of a run, exit code of a finished run if known, and a remark of the launcher about its end."""

    phase: RunPhase
    exit_code: int | None = None
    text: str = ""


class RunLauncher(Closing):
    """A way to launch runs; a context manager."""

    name: str
    """Name on the command line."""
    command: str = "bash launch.sh"
    """Shell text that the script of a run executes in its folder."""
    late_s: float = 0.0
    """Seconds after the end of a run until its files are visible, on file systems that nodes share."""

    def __init__(self) -> None:
        self._ended_at: dict[int, float] = {}

    def check(self) -> None:  # most launchers need nothing
        """Check the requirements of the launcher before any computation.

        Raises:
            RequestError: a program or a service that the launcher needs is missing.
        """

    @abstractmethod
    def place(self) -> str:
        """Describe the place of launches."""

    def slots(self, state: RunState, active: int) -> int:
        """Return the number of runs of this size that may run at once; ``active``: running now."""
        return 1

    def prepare(self, state: RunState, files: "Files") -> None:
        """Write the files of a run into its folder; deterministic for the same run."""
        state.folder.mkdir(parents=True, exist_ok=True)
        for name, text in {**files, SCRIPT: _SCRIPT.replace(COMMAND, self.command_of(state))}.items():
            write_text(state.folder / name, text)

    def command_of(self, state: RunState) -> str:
        """Return the shell text that starts the training."""
        return self.command

    @abstractmethod
    def start(self, state: RunState) -> str:
        """Start a prepared run unless it was started before, and return its handle.

        Raises:
            RequestError: the run cannot be started.
        """

    def status(self, state: RunState) -> Status:
        """Return the status of a run that was started, from the exit code of its script or from its phase.

        Raises:
            RequestError: the place of the run does not answer any more.
        """
        code, number = exit_code_of(state), state.run.number
        phase, text = self.phase(state) if code is None else (RunPhase.ENDED, "")
        if phase is not RunPhase.ENDED:
            self._ended_at.pop(number, None)
            return Status(phase=phase)
        code = exit_code_of(state)  # the script may have ended since the first reading
        if code is None and time.monotonic() < self._ended_at.setdefault(number, time.monotonic()) + self.late_s:
            return Status(phase=RunPhase.RUNNING)
        self.release(state)
        return Status(phase=phase, exit_code=code, text=text)

    @abstractmethod
    def phase(self, state: RunState) -> tuple[RunPhase, str]:
        """Return the phase of a run whose script left no exit code, and a remark about its end."""

    def release(self, state: RunState) -> None:
        """Release the resources of a finished run."""

    @abstractmethod
    def cancel(self, state: RunState) -> None:
        """End a run; returns when it has ended or cannot be reached."""

    def close(self) -> None:
        """Disconnect from the service of ``check``; runs continue."""


def exit_code_of(state: RunState) -> int | None:
    """Return the exit code that the script of a run left; None without one."""
    with suppress(OSError, ValueError):
        return int((state.folder / EXIT_CODE).read_text())
    return None


def unique_name(state: RunState) -> str:
    """Return a unique name of a run for queues and clusters."""
    digest = hashlib.sha256(str(state.folder.absolute()).encode()).hexdigest()[:10]
    return f"{PREFIX}{digest}-{state.run.name}"
