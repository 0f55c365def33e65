"""Workers: this process, processes of this machine, or Ray. All keep one contract and give the same results."""

from forerun.search.workers.contract import Failure, Workers
from forerun.search.workers.opening import IN_THIS_PROCESS, KINDS, Choice, open_workers

__all__ = ["IN_THIS_PROCESS", "KINDS", "Choice", "Failure", "Workers", "open_workers"]
