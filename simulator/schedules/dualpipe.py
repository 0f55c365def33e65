"""DualPipe: two pipelines that run against each other over the same devices (DeepSeek-V3, arXiv 2412.19437, 3.2.1).

The order is that of DeepSeek's published ``dualpipe.py``, in its eight steps.
"""

from collections import deque
from collections.abc import Iterator

from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Program, Programs


def dualpipe(shape: PipelineShape) -> Programs:
    """Return the programs: the first half of the microbatches enters at device 0, the second at device ``pp - 1``.

    Device d holds stage d for the first half and stage ``pp - 1 - d`` for the second.

    Raises:
        RequestError: an odd pp, several virtual stages, or an odd number of microbatches below ``2 pp``.
    """
    shape.require("dualpipe", shape.vpp == 1 and shape.pp % 2 == 0, "vpp=1 and an even pp")
    enough = shape.microbatches % 2 == 0 and shape.microbatches >= 2 * shape.pp
    shape.require("dualpipe", enough, f"an even number of at least {2 * shape.pp} microbatches")
    return [Program(_program, (shape, device)) for device in range(shape.pp)]


def _program(shape: PipelineShape, device: int) -> Iterator[Action]:
    return _Device(shape, device).program()


class _Device:
    """Writes one device's program. Side 0 is the direction in which the device stands in the first half of the
    pipeline, side 1 the other one."""

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
        """Write the eight steps one after the other."""
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
            if turn == 0 and inner == 0:  # the two middle devices have nothing to gain from weaving their first pair
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
        """Write the last backward passes; the later half of them leaves its weight gradients for the end."""
        turn, odd = (rank + 1) // 2, rank % 2 == 1
        for step in range(rank + 1):
            yield self.backward(1, split=step > turn or (step == turn and odd))
            yield self.backward(0, split=step >= turn)
        for _ in range(inner):
            yield self.weight()
            yield self.backward(0, split=True)
        while self.owed:
            yield self.weight()
