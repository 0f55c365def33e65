"""Launcher without launches: it writes folders and reads the logs that the user puts there."""

import time

from forerun.search.tune.launchers.contract import RunLauncher, RunPhase, Status, exit_code_of
from forerun.search.tune.run import LOG, SCRIPT, RunState

QUIET_S = 60.0
"""Seconds without growth after which a log is complete."""


class DryLauncher(RunLauncher):
    """Launcher that waits for the log of a run started by the user."""

    name = "dry"

    def place(self) -> str:
        """Describe the location of a launch."""
        return "by you: nothing is launched from here"

    def start(self, state: RunState) -> str:
        """Return the path at which the log is expected."""
        return f"start {state.folder / SCRIPT} on the cluster, or put the log of the run at {state.log}"

    def status(self, state: RunState) -> Status:
        """Return the status of a run from its log's growth."""
        code = exit_code_of(state)
        if code is not None:
            return Status(phase=RunPhase.ENDED, exit_code=code)
        try:
            quiet_s = time.time() - (state.folder / LOG).stat().st_mtime
        except OSError:
            return Status(phase=RunPhase.WAITING)
        return Status(phase=RunPhase.ENDED if quiet_s > QUIET_S else RunPhase.RUNNING)

    def cancel(self, state: RunState) -> None:
        """Do nothing: the user ends the run."""
