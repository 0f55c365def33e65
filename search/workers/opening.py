"""Opening of the workers that a user chose."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from forerun.search.workers.contract import ItemOutcome, Work, Workers, attempt
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.escaping import shown


class SerialWorkers(Workers):
    """One worker: the caller."""

    name = "serial"
    count = 1

    def run(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[ItemOutcome]:
        """Yield the outcome of one item after the other."""
        for number, item in enumerate(items):
            result, failure, seconds = attempt(work, common, item)
            yield ItemOutcome(number=number, item=item, result=result, failure=failure, seconds=seconds)

    def describe(self) -> str:
        """Return a description of the workers."""
        return "in this process"

    def close(self) -> None:
        """Do nothing: no worker was started."""


KINDS = ("serial", "processes", "ray")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The user's choice of workers; None for a missing field.

    Raises:
        RequestError: the kind is unknown, the count below one, or kind and count contradict each other.
    """

    kind: str | None = None
    """One of ``KINDS``."""
    count: int | None = None
    """Number of workers, 1 or more."""
    address: str | None = None
    """The Ray cluster to use: HOST:PORT, ray://HOST:PORT or auto."""

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise unknown("kind of workers", self.kind, KINDS)
        if self.count is not None and self.count < 1:
            raise RequestError(f"the number of workers must be at least 1, but got {self.count}")
        if self.kind == "serial" and (self.count or 1) > 1:
            raise RequestError(f"serial means one worker, but got {self.count}; use --workers processes")
        if self.address is not None and self.kind not in (None, "ray"):
            raise RequestError(f"--address is for --workers ray, but got --workers {self.kind}")

    @property
    def several(self) -> str:
        """Kind of parallel workers: Ray if a cluster is named, else processes."""
        if self.kind is not None:
            return self.kind
        return "ray" if self.address or os.environ.get("RAY_ADDRESS") else "processes"


IN_THIS_PROCESS = Choice(kind="serial")
"""Default of Python functions, since scripts must be written for spawned processes."""


def cores() -> int:
    """Return the number of CPUs available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_workers(choice: Choice) -> Workers:
    """Return workers of the kind of ``choice``, by default the kind for long work.

    If Ray cannot start on this machine, processes are used and ``remarks`` has the reason.

    Raises:
        RequestError: no Ray cluster answers at the address that the user named.
    """
    kind = choice.several
    if kind == "serial":
        return SerialWorkers()
    from forerun.search.workers.processes import ProcessWorkers  # imported late: most searches start no process

    if kind == "processes":
        return ProcessWorkers(choice.count or cores())
    from forerun.search.workers.ray_tasks import RayWorkers

    try:
        return RayWorkers(choice.count, choice.address or os.environ.get("RAY_ADDRESS") or None)
    except RequestError:
        raise
    except Exception as error:  # Ray fails to start in many harmless ways (ray#65983, #62883, #42514)
        if choice.address or os.environ.get("RAY_ADDRESS"):  # the user named a cluster: never use this machine instead
            raise RequestError(f"no Ray cluster can be used at {choice.address}: {shown(error, most=200)}") from None
        workers = ProcessWorkers(choice.count or cores())
        missing = isinstance(error, ModuleNotFoundError)
        why = "it is not installed" if missing else str(error).split("\n")[0]
        workers.remarks = (f"Ray did not start: {why}; the work is done {workers.describe()}",)
        return workers
