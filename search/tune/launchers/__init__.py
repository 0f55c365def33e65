"""Ways to launch a run: on this machine, by a command of the user's, by Slurm, or by hand."""

from forerun.search.tune.launchers.contract import RunLauncher, RunPhase, Status
from forerun.search.tune.launchers.table import LAUNCHERS, launcher_named

__all__ = ["LAUNCHERS", "RunLauncher", "RunPhase", "Status", "launcher_named"]
