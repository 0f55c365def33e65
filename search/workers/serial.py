"""Work in this process, without start-up or transfers."""

from collections.abc import Iterable, Iterator
from typing import Any

from forerun.search.workers.contract import ItemOutcome, Work, Workers, attempt


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
