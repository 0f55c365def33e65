"""The contract between a driver and any kind of workers.

A driver calls ``run`` any number of times and ``close`` once. ``run`` takes items one by one, keeps at most ``window``
of them in flight, and yields exactly one ``ItemOutcome`` per item, in the order in which they end. The iterator of
items may end and later continue, because outcomes can add items: after each outcome ``run`` asks again. The result of
work must depend on its arguments alone, because an item is repeated if its worker dies.
"""

import time
import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from forerun.spaces.closing import Closing
from forerun.spaces.errors import RequestError

Work = Callable[[Any, Any], Any]
"""``work(common, item) -> result``: a module-level function, importable by other processes."""

ATTEMPTS = 3
"""Attempts at an item whose worker dies; the last death is its failure."""
LIMIT_S = 1800.0
"""Seconds without any answer after which workers count as hanging; slices and parts take seconds (``slicing``,
``sweep``)."""
AHEAD = 3
"""Items in flight per worker: enough that no worker waits for the driver (docs.ray.io, ray-core/patterns: 2 to 4)."""


class WorkersLostError(RequestError):
    """All workers are lost; earlier results remain valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Error of an item without a result: class, text and trace."""

    kind: str
    message: str
    trace: str = ""
    exit_code: int = 1

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOutcome:
    """Outcome of one item.

    ``number`` is its position among the items; exactly one of ``failure`` and ``result`` is None. ``seconds`` are
    processor seconds, so that other load on the machine does not shrink slices.
    """

    number: int
    item: Any
    result: Any = None
    failure: Failure | None = None
    seconds: float = 0.0


class Workers(Closing):
    """Workers of one kind; a context manager that releases them at its end.

    ``name`` is the kind, ``count`` their number, ``remarks`` messages for the user about their start.
    """

    name: str
    count: int
    limit_s: float = LIMIT_S
    remarks: tuple[str, ...] = ()

    @property
    def window(self) -> int:
        """Items in flight at once."""
        return AHEAD * self.count

    @abstractmethod
    def run(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[ItemOutcome]:
        """Yield the outcome of ``work(common, item)`` for every item; ``common`` is sent to each worker once."""

    @abstractmethod
    def close(self) -> None:
        """Release the workers; items in flight are dropped."""

    @abstractmethod
    def describe(self) -> str:
        """Return a description of the workers."""


def attempt(work: Work, common: Any, item: Any) -> tuple[Any, Failure | None, float]:
    """Return (result, failure, processor seconds) of one call; only exceptions that end the process propagate."""
    start = time.thread_time()
    try:
        result, failure = work(common, item), None
    except Exception as error:
        result, failure = None, failure_of(error)
    return result, failure, time.thread_time() - start


def failure_of(error: BaseException) -> Failure:
    """Return an error as a value that other processes can read."""
    trace = "".join(traceback.format_exception(error))
    return Failure(kind=type(error).__name__, message=str(error), trace=trace, exit_code=getattr(error, "exit_code", 1))


def lost(times: int, reason: str) -> Failure:
    """Return the failure of an item whose workers died."""
    return Failure(kind="WorkerLost", message=f"the worker died {times} times in a row while doing this: {reason}")
