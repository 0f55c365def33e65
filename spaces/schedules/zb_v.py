"""ZB-V: two virtual stages per device laid out as a V (Qi et al., arXiv 2405.15362, section 4).

The static order is for equal passes, as in PyTorch's ``ScheduleZBVZeroBubble``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from forerun.spaces.schedules.contract import (
    Action,
    Keeping,
    Pass,
    PipelineSchedule,
    PipelineShape,
    Program,
    Programs,
)
from forerun.spaces.schedules.stage_times import Floats, StageTimes, sum_before


class ZBV(PipelineSchedule):
    """Zero-bubble V: rank d has virtual stages d and ``2 pp - 1 - d``.

    With fewer than ``2 pp - 1`` microbatches the order is that of ``2 pp - 1`` without the missing ones.
    """

    number = 4
    name = "zb-v"
    spelling = MappingProxyType({"torch": "ZBVZeroBubble", "simumax": "zb_v"})
    fewest_virtual = 2
    most_virtual = 2
    shape_law = "vpp=2"
    recomputes_some = False
    splits_backward = True
    turns_back = True
    rarity = 1

    def programs(self, shape: PipelineShape) -> Programs:
        """Return the programs."""
        shape.require(self.name, shape.vpp == 2, "vpp=2")
        return [Program(_program, (shape, device)) for device in range(shape.pp)]

    def bubble_s(self, stages: StageTimes, pp: Floats, vpp: Floats, microbatches: Floats) -> Floats:
        """Return zero: the bubble depends on both virtual stages of a rank (``zb_v_s``)."""
        return np.zeros_like(stages.forward_s)

    def in_flight(
        self, stage: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, uneven: Floats | float, memory: Keeping
    ) -> Floats:
        """Return ``2 pp`` parts of half a stage."""
        return pp

    def exposed_p2p(self, pp: Floats, vpp: Floats, microbatches: Floats, *, overlap: bool) -> Floats:
        """Return the transfers of microbatches that cross every border four times."""
        crossings = 4 * (pp - 1)
        if overlap:
            return np.where(microbatches > pp, 5 * pp - 7, crossings)
        return np.maximum(crossings, np.where(pp == 2, 2 * microbatches + 2, 4 * microbatches + pp - 3))

    def chunks_of_rank(self, pp: int, vpp: int, rank: int) -> tuple[int, ...]:
        """Return the virtual stages on the way down and on the way up."""
        return rank, 2 * pp - 1 - rank


def _program(shape: PipelineShape, device: int) -> Iterator[Action]:
    full = _full_program(shape.pp, device, max(shape.microbatches, 2 * shape.pp - 1))
    return (action for action in full if action.microbatch < shape.microbatches)


def _full_program(pp: int, device: int, count: int) -> Iterator[Action]:
    down, up = device, 2 * pp - 1 - device
    done = {(kind, chunk): 0 for kind in Pass for chunk in (down, up)}

    def next_of(kind: Pass, chunk: int) -> Action:
        """Return the next microbatch of a kind of pass."""
        done[kind, chunk] += 1
        return Action(kind, done[kind, chunk] - 1, chunk)

    def both_gradients(chunk: int) -> Iterator[Action]:
        """Yield an entire backward pass in two parts."""
        yield next_of(Pass.INPUT_GRADIENT, chunk)
        yield next_of(Pass.WEIGHT_GRADIENT, chunk)

    for _ in range(2 * (pp - device) - 1):
        yield next_of(Pass.FORWARD, down)
    for _ in range(device):
        yield next_of(Pass.FORWARD, up)
        yield next_of(Pass.FORWARD, down)
    for _ in range(pp - device):
        yield next_of(Pass.FORWARD, up)
        yield from both_gradients(up)
    while done[Pass.FORWARD, up] < count:
        if done[Pass.FORWARD, down] < count:
            yield next_of(Pass.FORWARD, down)
        yield from both_gradients(down)
        yield next_of(Pass.FORWARD, up)
        yield from both_gradients(up)
    for _ in range(device):
        yield next_of(Pass.INPUT_GRADIENT, down)
        yield next_of(Pass.INPUT_GRADIENT, up)
    for _ in range(pp - device):
        yield from both_gradients(down)
    for chunk in (up, down):
        while done[Pass.WEIGHT_GRADIENT, chunk] < count:
            yield next_of(Pass.WEIGHT_GRADIENT, chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class VeePasses:
    """Passes of the two virtual stages of each device of a V, [R, S] as in ``StageTimes``.

    The first entry is the stage in the first half of the model (with the embedding), the second the stage in the second
    half (with the head).
    """

    forward_s: tuple[Floats, Floats]
    input_s: tuple[Floats, Floats]
    """Gradient of the input."""
    weight_s: tuple[Floats, Floats]
    """Gradient of the weights."""
    multiplicity: Floats
    """Devices of the run (0 in padding)."""
    first: Floats
    """Number of the run's first device."""


def zb_v_s(passes: VeePasses, pp: Floats, microbatches: Floats) -> Floats:
    """Return the seconds of S steps.

    The first microbatch is followed down, up, and as a gradient up again, and the last microbatch's gradient up and
    down. On each of these paths a device waits for its neighbour, or for earlier passes of its own order: forward
    passes of ``2 pp - 2 d - 1`` microbatches on device d before the first one returns, and so on. With fewer than ``2
    pp - 1`` microbatches the order is that of ``2 pp - 1`` without the missing ones.
    """
    # Device d of pp runs forward passes down_d and up_d on the two halves of the V; back_d is the input gradient of
    # up_d and last_d that of down_d, early_d and late_d are their weight gradients. Its order before any gradient
    # (ZB-V, arXiv 2405.15362, figure 2) has F_d = min(2 (pp - d) - 1, m) passes down before its first pass up, and
    # P_d = min(2 pp - d - 1, m) passes down and R_d = min(d + 1, m) passes up before its first gradient. Four fronts of
    # one microbatch follow each other, each the running maximum over the devices that it has passed ("_from_above":
    # towards pp - 1, "_from_below": towards 0):
    #   1. first microbatch down to device pp - 1 and up again to d:  turn_d  = max_(e >= d) [sum_(i<e) down_i + F_e
    #      down_e + up from e to d]: a device cannot turn it before its own F_e passes
    #   2. its gradient from device 0 to d:                           first_d = max_(e <= d) [turn_e + passes of e
    #      before it, (P_e - F_e) down_e + R_e up_e, + back from e to d]
    #   3. gradient of the last microbatch on the same path, after all earlier passes in d's order
    #   4. its gradient on the downward half, from device pp - 1 to 0, after the other gradients of d
    # The step ends when the slowest device has run its remaining weight gradients. Each front is a path through the
    # order, so none exceeds the step.
    skipped = np.maximum(passes.multiplicity - 1, 0.0)
    device = _ends(passes.first, passes.first + skipped)
    padding = np.repeat(passes.multiplicity == 0, 2, axis=0)
    ahead = {
        name: _ends(before := sum_before(passes.multiplicity, values), before + skipped * values)
        for name, values in (("down", passes.forward_s[0]), ("up", passes.forward_s[1]), ("back", passes.input_s[1]))
    }
    (down, up), (last, back), (late, early) = (
        tuple(np.repeat(values, 2, axis=0) for values in pair)
        for pair in (passes.forward_s, passes.input_s, passes.weight_s)
    )
    before = sum_before(passes.multiplicity, passes.input_s[0])
    returning = _ends(before, before + skipped * passes.input_s[0]) + last
    count, most = microbatches, np.maximum(microbatches, 2 * pp - 1)
    filled, passed = np.minimum(2 * (pp - device) - 1, count), np.minimum(2 * pp - device - 1, count)
    returned = np.minimum(device + 1, count)
    # Down to the turn, and up from it: passes before the first forward pass on the upward path.
    above = ahead["up"] + up
    turn = _from_below(ahead["down"] + filled * down + above, padding) - above
    first = turn + (passed - filled) * down + returned * up
    first = _from_above(first - ahead["back"], padding) + ahead["back"]
    # Gradients that a device has computed when the last microbatch's gradient arrives.
    inputs, weights = np.maximum(count - pp + device, 0.0), np.minimum(count - 1, most - device)
    weighed = np.minimum(inputs, most - pp)
    final = first + (count - passed) * down + (count - returned) * up + (count - 1) * back + weights * early
    final = _from_above(final + inputs * last + weighed * late - ahead["back"], padding) + ahead["back"]
    made, done = np.minimum(most - device, count), np.minimum(count - 1, np.maximum(most - pp, count - 1 - device))
    final = final + back + (count - 1 - inputs) * last + (made - weights) * early + (done - weighed) * late
    final = _from_below(final + returning, padding) - returning
    final = final + last + (count - made) * early + (count - done) * late
    return np.asarray(np.where(padding, 0.0, final).max(axis=0))


def _ends(one: Floats, other: Floats) -> Floats:
    """Return [2R, S]: the first and the last stage of every run, alternately."""
    return np.stack((one, other), axis=1).reshape(2 * len(one), -1)


def _from_above(values: Floats, padding: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
    """Return the largest value among each stage and all earlier ones."""
    return np.asarray(np.maximum.accumulate(np.where(padding, -np.inf, values), axis=0))


def _from_below(values: Floats, padding: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Floats:
    """Return the largest value among each stage and all later ones."""
    return _from_above(values[::-1], padding[::-1])[::-1]
