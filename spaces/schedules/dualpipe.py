"""DualPipe: two pipelines in opposite directions on the same devices (DeepSeek-V3, arXiv 2412.19437, 3.2.1).

The order has the eight steps of DeepSeek's published ``dualpipe.py``.
"""

from collections import deque
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.schedules.contract import (
    Action,
    Count,
    IntArray,
    Keeping,
    Pass,
    PipelineSchedule,
    PipelineShape,
    Program,
    Programs,
)
from forerun.spaces.schedules.stage_times import Floats, StageTimes, total_over_stages


class DualPipe(PipelineSchedule):
    """The first half of the microbatches enters at rank 0, the second at rank ``pp - 1``.

    Rank d has stage d for the first half and stage ``pp - 1 - d`` for the second.
    """

    number = 5
    name = "dualpipe"
    spelling = MappingProxyType({"simumax": "dualpipe"})
    ranks_multiple = 2
    shape_law = "an even pp"
    microbatch_law = "an even number >= 2*pp"
    recomputes_some = False
    streams = 2
    rarity = 2

    def programs(self, shape: PipelineShape) -> Programs:
        """Return the programs."""
        shape.require(self.name, shape.vpp == 1 and shape.pp % 2 == 0, "vpp=1 and an even pp")
        enough = shape.microbatches % 2 == 0 and shape.microbatches >= 2 * shape.pp
        shape.require(self.name, enough, f"an even number of at least {2 * shape.pp} microbatches")
        return [Program(_program, (shape, device)) for device in range(shape.pp)]

    def bubble_s(self, stages: StageTimes, pp: Floats, vpp: Floats, microbatches: Floats) -> Floats:
        """Return the published bubble ``(pp/2 - 1)(f&b + b - 3w)`` (table 2) of the mean stage.

        b is the entire backward pass. The bubble is within 4 % of the event engine. A slower stage waits for input
        gradients of the others, or for forward passes of the stages between the ends.
        """
        forward, inputs, weight = stages.forward_s, stages.backward_s - stages.weight_s, stages.weight_s
        passes_s, count, turns = forward + stages.backward_s, stages.multiplicity, np.maximum(pp / 2 - 1, 0.0)
        means = [total_over_stages(count, values) / pp for values in (forward, inputs, weight)]
        # First and last device have the same two stages of the model.
        inner = [_inner(total * pp, ends[0], pp) for total, ends in zip(means, (forward, inputs), strict=False)]
        equal_s = (
            microbatches * sum(means) + turns * (means[0] + 2 * means[1] - means[2]) - (passes_s.max(axis=0) - passes_s)
        )
        waits = np.maximum(2 * means[1], inner[0] + 2 * inner[1]) - inputs - weight
        step_s = np.maximum(equal_s, microbatches * passes_s + np.maximum(turns * waits, 0.0))
        return np.asarray(step_s - microbatches * passes_s)

    def in_flight(
        self, stage: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, uneven: Floats | float, memory: Keeping
    ) -> Floats:
        """Return ``pp + 1`` parts of half a rank's layers (table 2)."""
        return (pp + 1) / 2

    def unpaired_share(self, pp: Floats, microbatches: Floats) -> Floats:
        """Return the unpaired passes: ``3 pp/2 - r - 1`` on rank r of a half (published order), 5/4 pp on average."""
        return np.minimum((1.25 * pp - 0.5) / microbatches, 1.0)

    def illegal_microbatches(self, pp: IntArray, microbatches: IntArray) -> NDArray[np.bool_]:
        """Mark the rows whose microbatches are odd, or too few to fill the pipeline from both ends."""
        return np.asarray((microbatches % 2 != 0) | (microbatches < 2 * pp))

    def virtual_stages(self, pp: Count, vpp: Count) -> Count:
        """Return the number of stages, each on two ranks."""
        return pp

    def chunks_of_rank(self, pp: int, vpp: int, rank: int) -> tuple[int, ...]:
        """Return the stages of both halves."""
        return tuple(sorted((rank, pp - 1 - rank)))


def _inner(total: Floats, end: Floats, pp: Floats) -> Floats:
    """Return the mean over the stages between the two ends."""
    return np.asarray(np.where(pp > 2, (total - 2 * end) / np.maximum(pp - 2, 1.0), end))


def _program(shape: PipelineShape, device: int) -> Iterator[Action]:
    return _Device(shape, device).program()


class _Device:
    """Writer of one device's program. In the direction of side 0 the device is in the first half of the pipeline."""

    def __init__(self, shape: PipelineShape, device: int) -> None:
        self.half = shape.microbatches // 2
        self.pp = shape.pp
        swap = int(device >= shape.pp // 2)
        self.rank = min(device, shape.pp - 1 - device)
        self.chunk = [device, shape.pp - 1 - device]
        self.direction = [swap, 1 - swap]
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.owed: deque[Action] = deque()

    def forward(self, side: int, *, interwoven: bool = False) -> Action:
        direction = self.direction[side]
        microbatch = direction * self.half + self.forwards[side]
        self.forwards[side] += 1
        return Action(Pass.FORWARD, microbatch, self.chunk[direction], interwoven)

    def backward(self, side: int, *, split: bool = False) -> Action:
        direction = self.direction[side]
        microbatch = direction * self.half + self.backwards[side]
        self.backwards[side] += 1
        if split:
            self.owed.append(Action(Pass.WEIGHT_GRADIENT, microbatch, self.chunk[direction]))
        return Action(Pass.INPUT_GRADIENT if split else Pass.BACKWARD, microbatch, self.chunk[direction])

    def both(self, forward: int, backward: int) -> Iterator[Action]:
        yield self.forward(forward, interwoven=True)
        yield self.backward(backward)

    def weight(self) -> Action:
        return self.owed.popleft()

    def program(self) -> Iterator[Action]:
        """Yield the actions of the eight steps in order."""
        inner, rank = self.pp // 2 - self.rank - 1, self.rank
        for _ in range(2 * inner):
            yield self.forward(0)
        for _ in range(rank + 1):
            yield self.forward(0)
            yield self.forward(1)
        for _ in range(inner):
            yield self.backward(1, split=True)
            yield self.weight()
            yield self.forward(1)
        for turn in range(self.half - self.pp + rank + 1):
            if turn == 0 and inner == 0:  # interweaving its first pair gains nothing on the two middle devices
                yield self.forward(0)
                yield self.backward(1)
            else:
                yield from self.both(0, 1)
            yield from self.both(1, 0)
        for _ in range(inner):
            yield self.backward(1)
            yield from self.both(1, 0)
        yield from self._drain(inner, rank)

    def _drain(self, inner: int, rank: int) -> Iterator[Action]:
        """Yield the last backward passes; the later half of them postpones its weight gradients to the end."""
        turn, odd = (rank + 1) // 2, rank % 2 == 1
        for step in range(rank + 1):
            yield self.backward(1, split=step > turn or (step == turn and odd))
            yield self.backward(0, split=step >= turn)
        for _ in range(inner):
            yield self.weight()
            yield self.backward(0, split=True)
        while self.owed:
            yield self.weight()
