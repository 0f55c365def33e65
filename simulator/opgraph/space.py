"""Enumeration of the useful splits of an operator graph over given numbers of devices."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph.candidates import candidates_of
from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.memory import graph_memory, held_by, peak_bytes
from forerun.simulator.opgraph.table import SplitTable, table_of_splits
from forerun.spaces.divisors import divisors
from forerun.spaces.opgraph import GraphModel, Kind
from forerun.spaces.opgraph.limits import broken_laws, grids
from forerun.spaces.opgraph.split import Mode, Split

SEGMENTS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of microbatches of a pipeline."""

LONGEST_PIPELINE = 64
"""Largest number of stages; no catalogued model has more layers worth a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumeratedSplits:
    """Part of a slice: its legal candidates, the number of illegal candidates by reason, and the number of skipped
    ones.
    """

    table: SplitTable
    rejected: Counter[str]
    passed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitSpace:
    """Candidates by devices and text; ``reasons``: the first law that each breaks, empty for legal candidates."""

    context: GraphContext
    splits: tuple[Split, ...]
    reasons: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of candidates, including illegal ones."""
        return len(self.splits)

    def table(self, low: int, high: int) -> tuple[SplitTable, Counter[str]]:
        """Return the legal candidates with index in ``[low, high)`` and the number of illegal ones by reason."""
        low, high = max(low, 0), min(high, self.size)
        reasons = self.reasons[low:high]
        index = np.array([low + place for place, reason in enumerate(reasons) if not reason], dtype=np.int64)
        table = table_of_splits(self.context, [self.splits[place] for place in index], index)
        return table, Counter(reason for reason in reasons if reason)

    @property
    def below(self) -> int:
        """Return 1: each candidate is listed, whereas a strategy space has candidates below prefixes."""
        return 1

    def walk(self, low: int, high: int, hopeless: object = None) -> Iterator[EnumeratedSplits]:
        """Yield the legal candidates with index in ``[low, high)``; ``hopeless`` is not used."""
        table, rejected = self.table(low, high)
        yield EnumeratedSplits(table=table, rejected=rejected)

    def strategies(self, indices: NDArray[np.int64]) -> tuple[Split, ...]:
        """Return some candidates, in the order given."""
        return tuple(self.splits[index] for index in indices)


def split_space(context: GraphContext, counts: Sequence[int], modes: Sequence[Mode]) -> SplitSpace:
    """Return the splits over each number of devices of ``counts`` in the given modes.

    A split that does not fit into memory is also listed with as few segments as fit (``_in_segments``).
    """
    names: dict[Split, str] = {}
    for devices in counts:
        batch = context.batch(devices)
        for split in splits_over(devices, context.model, modes):
            names[split] = next((reason for reason, _ in broken_laws(context.model, split, batch)), "")
    names |= dict.fromkeys(_in_segments(context, [split for split, reason in names.items() if not reason]), "")
    splits = sorted(names, key=lambda split: (split.devices, str(split)))
    return SplitSpace(context=context, splits=tuple(splits), reasons=tuple(names[split] for split in splits))


def _in_segments(context: GraphContext, legal: Sequence[Split]) -> list[Split]:
    """Divide splits that do not fit into the fewest segments that fit, at least doubled, or into single samples."""
    # Pipelines already have segments, and splits that fit in some form are left unchanged.
    most: dict[Split, int] = {}
    fitting: set[Split] = set()
    flat = [split for split in legal if split.mode is not Mode.PIPELINE]
    for split, fits in zip(flat, _fits(context, flat), strict=True):
        unsegmented = replace(split, segments=1)
        most[unsegmented] = max(split.segments, most.get(unsegmented, 1))
        fitting |= {unsegmented} if fits else set()
    waiting, fitting_splits = {split: count for split, count in most.items() if split not in fitting}, list[Split]()
    while waiting:
        samples = {split: context.batch(split.devices) // split.replicas for split in waiting}
        more = {split: [n for n in divisors(samples[split]) if n >= 2 * waiting[split]] for split in waiting}
        tried = [replace(split, segments=counts[0]) for split, counts in more.items() if counts]
        waiting = {}
        for split, fits in zip(tried, _fits(context, tried), strict=True):
            unsegmented = replace(split, segments=1)
            if fits or split.segments == samples[unsegmented]:
                fitting_splits.append(split)
            else:
                waiting[unsegmented] = split.segments
    return fitting_splits


def _fits(context: GraphContext, splits: Sequence[Split]) -> list[bool]:
    """Mark the splits that fit into memory; none is a pipeline."""
    if not splits:
        return []
    c = candidates_of(splits, [context.batch(split.devices) for split in splits])
    return list(peak_bytes(graph_memory(context, c, held_by(context, c))) <= context.memory_limit_bytes)


def splits_over(devices: int, model: GraphModel, modes: Sequence[Mode]) -> Iterator[Split]:
    """Yield the splits over exactly ``devices``, in a fixed order."""
    if Mode.DATA in modes:
        yield Split(replicas=devices)
        if devices > 1 and any(operator.kind is Kind.LINEAR for operator in model.operators):
            yield Split(replicas=devices, mixed=True)
        if devices > 1 and model.tables:
            yield Split(replicas=devices, spread=True)
    for parts in divisors(devices)[1:]:
        replicas = devices // parts
        # The samples of the replica at once, or the number of samples per device under data parallelism.
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
