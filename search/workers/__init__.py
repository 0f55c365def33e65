"""Workers: this process, processes of this machine, or Ray. All keep one contract and give the same results."""

from forerun.search.workers.contract import Failure, ItemOutcome, Workers
from forerun.search.workers.opening import IN_THIS_PROCESS, KINDS, Choice, open_workers
from forerun.search.workers.serial import SerialWorkers

__all__ = ["IN_THIS_PROCESS", "KINDS", "Choice", "Failure", "ItemOutcome", "SerialWorkers", "Workers", "open_workers"]
