"""Gradients of weights in buckets, as data-parallel frameworks send them."""

from dataclasses import dataclass, field

from forerun.simulator.layouts import Transfer

FIRST_BUCKET_BYTES = 2.0**20
"""The first bucket is small, so that the first all-reduce starts early (PyTorch's ``DistributedDataParallel``)."""


@dataclass(slots=True)
class _Open:
    transfer: Transfer
    elements: list[float]
    size_bytes: float = 0.0
    members: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One collective for several gradients, and the tasks that make them."""

    transfer: Transfer
    members: tuple[int, ...]


class Buckets:
    """Collects transfers of one kind among the same groups until they fill a bucket: 1 MiB, then ``bucket_bytes``."""

    def __init__(self, bucket_bytes: float, element_bytes: float) -> None:
        self.bucket_bytes, self.element_bytes = bucket_bytes, element_bytes
        self._open: dict[tuple[str, tuple[tuple[int, ...], ...]], _Open] = {}
        self._begun: set[tuple[str, tuple[tuple[int, ...], ...]]] = set()

    def add(self, transfer: Transfer, task: int) -> list[Bucket]:
        """Add the transfer of a gradient that a task makes; return the bucket that this fills, if it does."""
        key = (transfer.kind, transfer.groups)
        entry = self._open.setdefault(key, _Open(transfer, [0.0] * len(transfer.groups)))
        entry.elements = [one + other for one, other in zip(entry.elements, transfer.elements, strict=True)]
        entry.size_bytes += max(transfer.elements) * self.element_bytes
        entry.members.append(task)
        limit = self.bucket_bytes if key in self._begun else min(FIRST_BUCKET_BYTES, self.bucket_bytes)
        return [self._close(key)] if entry.size_bytes > limit else []

    def rest(self) -> list[Bucket]:
        """Return what has filled no bucket."""
        return [self._close(key) for key in list(self._open)]

    def _close(self, key: tuple[str, tuple[tuple[int, ...], ...]]) -> Bucket:
        entry = self._open.pop(key)
        self._begun.add(key)
        joined = Transfer(kind=key[0], groups=key[1], elements=tuple(entry.elements))
        return Bucket(joined, tuple(entry.members))
