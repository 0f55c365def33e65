"""Ways to launch a run: on this machine, by a user's command, by Slurm, on Ray, or manually."""

from forerun.search.tune.launchers.contract import RunLauncher
from forerun.search.tune.launchers.table import launcher_named

__all__ = ["RunLauncher", "launcher_named"]
