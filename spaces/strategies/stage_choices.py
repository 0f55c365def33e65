"""Choices that may differ between pipeline stages: recompute, tensors on the host, and the tp of each half.

Stages keep their devices: where ``tp`` changes, ``dp`` and ``mbs`` follow, so that every stage processes the same
sequences at a time and the number of pipelines does not change (as Alpa divides one microbatch by another mesh on each
stage, arXiv 2201.12023, section 5).
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from forerun.spaces.errors import RequestError
from forerun.spaces.strategies.axes import SPELLING, Recompute
from forerun.spaces.strategies.stage_offload import StageOffload

_ENTRY = re.compile(r"(none|selective|full|[a-z_]+(?:\+[a-z_]+)*)(?::(\d+))?(?:\*(\d+))?")
MOST_STAGES = 100_000
"""Limit of stages listed by one word of a strategy."""


class StageRecompute(NamedTuple):
    """Recompute of one stage: its first ``layers`` (None: all), as Megatron's block method counts."""

    kind: Recompute
    layers: int | None = None

    def __str__(self) -> str:
        """Return ``full:3`` or ``selective``."""
        name = SPELLING["recompute"][int(self.kind)]
        return name if self.layers is None else f"{name}:{self.layers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChoices:
    """Differences between stages; None for each choice that all stages share."""

    second_tp: int | None = None
    recompute: tuple[StageRecompute, ...] | None = None
    offload: tuple[StageOffload, ...] | None = None


def in_second_half(stage: int, pp: int) -> bool:
    """Check whether a stage is in the second half of a pipeline; a middle one belongs to the first half.

    >>> [in_second_half(stage, 5) for stage in range(5)]
    [False, False, False, True, True]
    """
    return 2 * stage >= pp


def recompute_text(entries: Sequence[StageRecompute]) -> str:
    """Return the recompute of every stage as a text with equal neighbours joined; one entry is for all stages.

    >>> recompute_text([StageRecompute(Recompute.FULL, 3)] * 2 + [StageRecompute(Recompute.NONE)])
    'full:3*2,none'
    """
    runs = [(str(entry), len(list(run))) for entry, run in itertools.groupby(entries)]
    if len(runs) == 1:
        return runs[0][0]
    return ",".join(text if count == 1 else f"{text}*{count}" for text, count in runs)


def parse_recompute(text: str, pp: int) -> tuple[StageRecompute, ...]:
    """Read the recompute of each of ``pp`` stages.

    >>> [str(entry) for entry in parse_recompute("full:3*2,none", 3)]
    ['full:3', 'full:3', 'none']

    Raises:
        RequestError: an entry cannot be read, or the number of entries is wrong.
    """
    entries: list[StageRecompute] = []
    names = {name: Recompute(number) for number, name in SPELLING["recompute"].items()}
    for word in text.lower().split(","):
        match = _ENTRY.fullmatch(word)
        if match is None or match[1] not in names:
            raise RequestError(f"cannot read {word!r} in recompute={text}; write entries like full, full:3 or none*4")
        count = int(match[3] or 1)
        if len(entries) + count > MOST_STAGES:
            raise RequestError(f"recompute={text} names more than {MOST_STAGES} stages")
        entries += [StageRecompute(names[match[1]], None if match[2] is None else int(match[2]))] * count
    if len(entries) == 1 and "*" not in text and pp <= MOST_STAGES:
        entries *= pp
    if len(entries) != pp:
        raise RequestError(f"recompute= must name {pp} stages (pp) or one for all, but got {len(entries)}")
    return tuple(entries)


def tidy(entries: tuple[StageRecompute, ...], layers: Sequence[int]) -> tuple[StageRecompute, ...]:
    """Return the canonical recompute of stages with these layers: no entry names all or none of its stage's layers.

    >>> [str(e) for e in tidy((StageRecompute(Recompute.FULL, 4), StageRecompute(Recompute.FULL, 0)), (4, 4))]
    ['full', 'none']
    """
    tidied = []
    for entry, count in zip(entries, layers, strict=True):
        if entry.kind == Recompute.NONE or entry.layers == 0:
            tidied.append(StageRecompute(Recompute.NONE))
        else:
            tidied.append(StageRecompute(entry.kind, None if entry.layers == count else entry.layers))
    return tuple(tidied)


def common_recompute(entries: Sequence[StageRecompute]) -> Recompute | None:
    """Return the common recompute of all stages if it is for all their layers, else None."""
    first = entries[0]
    return first.kind if first.layers is None and all(entry == first for entry in entries) else None


def recompute_fields(entries: tuple[StageRecompute, ...], layers: Sequence[int] | None) -> dict[str, Any]:
    """Return the strategy fields for the canonical recompute of stages with ``layers`` (None: unknown)."""
    if layers is not None:
        clipped = [
            entry if entry.layers is None else StageRecompute(entry.kind, min(entry.layers, count))
            for entry, count in zip(entries, layers, strict=True)
        ]
        entries = tidy(tuple(clipped), layers)
    common = common_recompute(entries)
    if common is not None:
        return {"recompute": common, "recompute_layers": 0, "stage_recompute": None}
    return {"recompute": Recompute.NONE, "stage_recompute": entries}
