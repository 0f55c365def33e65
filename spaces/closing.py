"""Base of context managers that end with ``close``."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """Context manager that closes itself at the end of its block."""

    @abstractmethod
    def close(self) -> None:
        """Release files, locks and processes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
