"""Buckets of weight gradients, as in data-parallel frameworks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from forerun.simulator.layouts import Transfer
from forerun.simulator.opgraph.messages import Filling

Key = tuple[str, tuple[tuple[int, ...], ...]]


@dataclass(slots=True)
class _Open:
    elements: list[float]
    members: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One collective for several gradients, and the tasks that compute them."""

    transfer: Transfer
    members: tuple[int, ...]


class Buckets:
    """Collector of transfers of one kind and group into the buckets that ``Filling`` gives for all of them."""

    def __init__(self, filling: Filling, element_bytes: float, transfers: Sequence[Transfer]) -> None:
        sizes: dict[Key, list[float]] = {}
        for transfer in transfers:
            sizes.setdefault(_key(transfer), []).append(max(transfer.elements) * element_bytes)
        self._closing = {key: {bucket[-1] for bucket in filling.buckets(each)} for key, each in sizes.items()}
        self._added = dict.fromkeys(sizes, 0)
        self._open: dict[Key, _Open] = {}

    def add(self, transfer: Transfer, task: int) -> Bucket | None:
        """Add the transfer of a task's gradient; return the bucket that it completes, if any."""
        key = _key(transfer)
        entry = self._open.setdefault(key, _Open([0.0] * len(transfer.groups)))
        entry.elements = [one + other for one, other in zip(entry.elements, transfer.elements, strict=True)]
        entry.members.append(task)
        place = self._added[key]
        self._added[key] = place + 1
        if place not in self._closing[key]:
            return None
        del self._open[key]
        joined = Transfer(kind=key[0], groups=key[1], elements=tuple(entry.elements))
        return Bucket(joined, tuple(entry.members))


def _key(transfer: Transfer) -> Key:
    return (transfer.kind, transfer.groups)
