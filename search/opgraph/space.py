"""Every way to split an operator graph over some numbers of devices that is worth looking at."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from forerun.search.opgraph.request import GraphSetting
from forerun.spaces.divisors import divisors
from forerun.spaces.opgraph import GraphModel, Kind
from forerun.spaces.opgraph.limits import broken_laws, grids
from forerun.spaces.opgraph.split import Mode, Split

SEGMENTS = (1, 2, 4, 8, 16, 32, 64)
"""Microbatches of a pipeline."""

LONGEST_PIPELINE = 64
"""Stages at most; the models here have no more layers worth a device of their own."""


@dataclass(slots=True)
class Space:
    """Legal splits with their global batches, and how many were refused by reason."""

    splits: list[Split] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    rejected: dict[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """All candidates."""
        return len(self.splits) + sum(self.rejected.values())


def enumerate_splits(setting: GraphSetting, counts: tuple[int, ...]) -> Space:
    """Return every legal split over ``counts`` devices."""
    space, model = Space(), setting.context.model
    for devices in counts:
        batch = setting.batch(devices)
        for split in splits_over(devices, model, setting.modes):
            reason = next((name for name, _ in broken_laws(model, split, batch)), None)
            if reason is None:
                space.splits.append(split)
                space.batches.append(batch)
            else:
                space.rejected[reason] = space.rejected.get(reason, 0) + 1
    return space


def splits_over(devices: int, model: GraphModel, modes: tuple[Mode, ...]) -> Iterator[Split]:
    """Yield the splits that occupy exactly ``devices``, in a fixed order."""
    if Mode.DATA in modes:
        yield Split(replicas=devices)
        if devices > 1 and any(operator.kind is Kind.LINEAR for operator in model.operators):
            yield Split(replicas=devices, mixed=True)
        if devices > 1 and model.tables:
            yield Split(replicas=devices, spread=True)
    for parts in divisors(devices)[1:]:
        replicas = devices // parts
        # The samples of the replica at once, or as many as data parallelism has on a device at a time.
        for segments in (1, parts):
            if Mode.SPATIAL in modes:
                for grid in grids(parts, model.input[1:]):
                    yield Split(replicas=replicas, mode=Mode.SPATIAL, parts=parts, grid=grid, segments=segments)
            for mode in (Mode.FILTER, Mode.CHANNEL):
                if mode in modes:
                    yield Split(replicas=replicas, mode=mode, parts=parts, segments=segments)
        if Mode.PIPELINE in modes and parts <= LONGEST_PIPELINE:
            for segments in SEGMENTS:
                yield Split(replicas=replicas, mode=Mode.PIPELINE, parts=parts, segments=segments)
