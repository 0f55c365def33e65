"""Objects as keys of caches, by identity."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Same(Generic[T]):
    """Key that equals another key of the same object.

    Clusters have dictionaries, which cannot be hashed, and comparing catalogue entries by value would take longer than
    most cached computations.
    """

    value: T

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value
