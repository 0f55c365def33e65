"""Facts about a pipeline rank's program that are needed before its tasks are written, without storing its passes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from forerun.spaces.schedules import Action, Pass, Programs

LAST_PASSES = (Pass.BACKWARD, Pass.WEIGHT_GRADIENT)

RanksOfChunk = list[list[tuple[int, int, int]]]
"""Virtual stages with their passes' (pipeline rank, first microbatch, last microbatch)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageOrder:
    """Program of one pipeline rank.

    ``length``: number of its actions. ``first`` and ``last``: by virtual stage, the places of its first pass and of the
    pass that completes its gradients.
    """

    stage: int
    program: Iterable[Action]
    length: int
    first: dict[int, int]
    last: dict[int, int]
    ranks_of_chunk: RanksOfChunk = field(repr=False)

    def rank_of(self, microbatch: int, chunk: int) -> int | None:
        """Return the pipeline rank of a microbatch on a virtual stage, None where the stage does not exist."""
        if 0 <= chunk < len(self.ranks_of_chunk):
            for stage, low, high in self.ranks_of_chunk[chunk]:
                if low <= microbatch <= high:
                    return stage
        return None

    def begins(self, action: Action) -> bool:
        """Check whether a forward pass is the first of its microbatch on this pipeline rank."""
        return all(self.rank_of(action.microbatch, chunk) != self.stage for chunk in self.first if chunk < action.chunk)


def stage_orders(programs: Programs, chunks: int) -> list[StageOrder]:
    """Return the orders of all pipeline ranks."""
    ranks_of_chunk: RanksOfChunk = [[] for _ in range(chunks)]
    orders = []
    for stage, program in enumerate(programs):
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        low: dict[int, int] = {}
        high: dict[int, int] = {}
        length = 0
        for place, (kind, microbatch, chunk, _) in enumerate(program):
            first.setdefault(chunk, place)
            if kind in LAST_PASSES:
                last[chunk] = place
            if kind == Pass.FORWARD:
                low[chunk] = min(low.get(chunk, microbatch), microbatch)
                high[chunk] = max(high.get(chunk, microbatch), microbatch)
            length += 1
        for chunk in low:
            ranks_of_chunk[chunk].append((stage, low[chunk], high[chunk]))
        order = StageOrder(
            stage=stage, program=program, length=length, first=first, last=last, ranks_of_chunk=ranks_of_chunk
        )
        orders.append(order)
    return orders
