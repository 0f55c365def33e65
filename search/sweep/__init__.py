"""Many searches as one job: a plan, a run directory that survives anything, one leaderboard across everything."""

from forerun.search.sweep.chunks import Portions
from forerun.search.sweep.journal import StorageError
from forerun.search.sweep.plan import SweepPiece, SweepPlan, read_plan
from forerun.search.sweep.run import SweepResult, Watch, run_sweep
from forerun.search.sweep.rundir import RunDirectory

__all__ = [
    "Portions",
    "RunDirectory",
    "StorageError",
    "SweepPiece",
    "SweepPlan",
    "SweepResult",
    "Watch",
    "read_plan",
    "run_sweep",
]
