"""Many searches as one job: a plan, a crash-safe run directory, one leaderboard of all results."""

from forerun.search.files.journal import StorageError
from forerun.search.sweep.chunks import ChunkTimes
from forerun.search.sweep.plan import SweepPlan, SweepSearch, read_plan
from forerun.search.sweep.run import Watch, run_sweep
from forerun.search.sweep.rundir import RunDirectory

__all__ = [
    "ChunkTimes",
    "RunDirectory",
    "StorageError",
    "SweepPlan",
    "SweepSearch",
    "Watch",
    "read_plan",
    "run_sweep",
]
