"""Launcher without launches: it writes folders and reads the logs that the user puts there."""

import time

from forerun.search.tune.launchers.contract import RunLauncher, RunPhase
from forerun.search.tune.run import SCRIPT, RunState

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

    def phase(self, state: RunState) -> tuple[RunPhase, str]:
        """Return the phase of a run from the growth of its log."""
        try:
            quiet_s = time.time() - state.log.stat().st_mtime
        except OSError:
            return RunPhase.WAITING, ""
        return RunPhase.ENDED if quiet_s > QUIET_S else RunPhase.RUNNING, ""

    def cancel(self, state: RunState) -> None:
        """Do nothing: the user ends the run."""
