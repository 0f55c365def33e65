"""Work in this process: no start-up, nothing to send."""

from collections.abc import Iterable, Iterator
from typing import Any

from forerun.search.workers.contract import ItemOutcome, Work, Workers, attempt


class SerialWorkers(Workers):
    """One worker: the caller."""

    name = "serial"
    count = 1

    def run(self, work: Work, common: Any, items: Iterable[Any]) -> Iterator[ItemOutcome]:
        """Do one item at a time, in their order."""
        for number, item in enumerate(items):
            result, failure, seconds = attempt(work, common, item)
            yield ItemOutcome(number=number, item=item, result=result, failure=failure, seconds=seconds)

    def describe(self) -> str:
        """Return in words who works."""
        return "in this process"

    def close(self) -> None:
        """Nothing was started."""
