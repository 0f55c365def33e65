"""Runs as processes of this machine: the launch script itself, or a user's command that reaches other nodes."""

import os
import re
import shlex
import signal
import socket
import subprocess
import time
from contextlib import suppress

from forerun.search.tune.launchers.contract import PROCESS, RunLauncher, RunPhase
from forerun.search.tune.run import SCRIPT, STARTED, RunState
from forerun.search.tune.secrets import redacted
from forerun.search.workers.process_tree import began, family_of, kill, living
from forerun.spaces import system
from forerun.spaces.errors import RequestError, unknown

GRACE_S = 40.0
"""Seconds from asking a run to end until it is killed: torchrun takes up to 30 to end its workers."""
STARTING_S = 20.0
"""Seconds within which the script of a run must begin."""
POLL_S = 0.05
_FIELD = re.compile(r"\{(\w+)\}")


class ProcessLauncher(RunLauncher):
    """Launcher of the script in a separate session, which outlives the driver."""

    name = "local"

    def __init__(self) -> None:
        super().__init__()
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def place(self) -> str:
        """Return the name of this machine."""
        return f"on this machine ({socket.gethostname()})"

    def start(self, state: RunState) -> str:
        """Start the script, unless it has already begun."""
        if not (state.folder / STARTED).exists():
            try:
                child = system.start(["bash", str(state.folder / SCRIPT)], env=os.environ, detached=True)
            except OSError as error:
                raise RequestError(f"cannot run bash: {error.strerror}") from None
            self._children[child.pid] = child
        ends_at = time.monotonic() + STARTING_S
        while time.monotonic() < ends_at:
            with suppress(OSError):
                return (state.folder / PROCESS).read_text().strip()
            time.sleep(POLL_S)
        if (state.folder / STARTED).exists():  # its script was killed before it wrote an exit code
            return f"0 ended {socket.gethostname()}"
        raise RequestError(f"{state.folder / SCRIPT} does not begin: can bash write to its folder?")

    def phase(self, state: RunState) -> tuple[RunPhase, str]:
        """Return the phase of a run from its process."""
        if self._alive(state):
            return RunPhase.RUNNING, ""
        return RunPhase.ENDED, "its process was killed, or the machine was started anew"

    def release(self, state: RunState) -> None:
        """Wait for the end of the script, in which nothing follows the exit code."""
        if (child := self._children.pop(self._process(state)[0], None)) is not None:
            child.wait()

    def cancel(self, state: RunState) -> None:
        """Ask all processes of the run to end, and kill the remaining ones."""
        if not self._alive(state):
            return
        pid = self._process(state)[0]
        family = family_of(pid)
        _signal_group(pid, signal.SIGTERM)
        ends_at = time.monotonic() + GRACE_S
        while living(family) and time.monotonic() < ends_at:
            self._alive(state)
            family |= family_of(pid)
            time.sleep(POLL_S)
        if living(family):
            _signal_group(pid, signal.SIGKILL)
            kill(family)
        self._alive(state)

    def _process(self, state: RunState) -> tuple[int, str]:
        """Return the process id of a run and the ticks at which it began.

        Raises
        ------
        RequestError
            The run was started on another machine.
        """
        pid, ticks, host = (state.handle or "").split(" ", 2)
        if host != socket.gethostname():
            raise RequestError(f"run {state.run.name} was started on {host}; continue there")
        return int(pid), ticks

    def _alive(self, state: RunState) -> bool:
        pid, ticks = self._process(state)
        if (child := self._children.get(pid)) is not None and child.poll() is not None:
            return False
        return began(pid) == ticks


class CommandLauncher(ProcessLauncher):
    """Launcher by a user's command, which ends with the training.

    Parameters
    ----------
    template
        Shell text with ``{folder}``, ``{nodes}``, ``{gpus}``, ``{name}`` and ``{steps}``.

    Raises
    ------
    RequestError
        The template has another field.
    """

    name = "command"

    def __init__(self, template: str) -> None:
        super().__init__()
        self.template = redacted(template)
        if not template.strip():
            raise RequestError(
                "--launcher command needs a command, like 'srun --nodes {nodes} bash {folder}/launch.sh'"
            )
        filled(template, {"folder": "", "nodes": 1, "gpus": 1, "name": "", "steps": 1})

    def place(self) -> str:
        """Return the command."""
        return f"by the command: {self.template}"

    def command_of(self, state: RunState) -> str:
        """Return the command with its fields filled."""
        run = state.run
        fields = {"folder": state.folder.absolute(), "nodes": run.nodes, "gpus": run.gpus}
        return f"( {filled(self.template, {**fields, 'name': run.name, 'steps': run.steps})} )"


def filled(template: str, values: dict[str, object]) -> str:
    """Fill ``{name}`` fields of shell text with quoted values; ``${name}`` is left to the shell.

    >>> filled("run.sh {folder} ${HOME}", {"folder": "a b"})
    "run.sh 'a b' ${HOME}"

    Raises
    ------
    RequestError
        A field has no value.
    """

    def value(match: re.Match[str]) -> str:
        if match.start() and template[match.start() - 1] == "$":
            return match[0]
        if match[1] not in values:
            raise unknown("field", match[1], values)
        return shlex.quote(str(values[match[1]]))

    return _FIELD.sub(value, template)


def _signal_group(pid: int, number: int) -> None:
    with suppress(OSError):
        os.killpg(pid, number)
