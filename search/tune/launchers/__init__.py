"""Ways to launch a run: on this machine, by a command of the user's, by Slurm, on Ray, or by hand."""

from forerun.search.tune.launchers.contract import RunLauncher, RunPhase, Status
from forerun.search.tune.launchers.table import launcher_named

__all__ = ["RunLauncher", "RunPhase", "Status", "launcher_named"]
