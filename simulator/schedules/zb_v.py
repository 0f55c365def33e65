"""ZB-V: two virtual stages per device laid out as a V (Qi et al., arXiv 2405.15362, section 4).

The static order for equal passes, as PyTorch's ``ScheduleZBVZeroBubble`` writes it down.
"""

from collections.abc import Iterator

from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Program, Programs


def zb_v(shape: PipelineShape) -> Programs:
    """Return the programs of ZB-V: device d holds virtual stages d and ``2 pp - 1 - d``.

    With fewer than ``2 pp - 1`` microbatches the order is that of ``2 pp - 1`` without the missing ones.

    Raises:
        RequestError: not two virtual stages per device.
    """
    shape.require("zb-v", shape.vpp == 2, "vpp=2")
    return [Program(_program, (shape, device)) for device in range(shape.pp)]


def _program(shape: PipelineShape, device: int) -> Iterator[Action]:
    full = _full_program(shape.pp, device, max(shape.microbatches, 2 * shape.pp - 1))
    return (action for action in full if action.microbatch < shape.microbatches)


def _full_program(pp: int, device: int, count: int) -> Iterator[Action]:
    down, up = device, 2 * pp - 1 - device
    done = {(kind, chunk): 0 for kind in Pass for chunk in (down, up)}

    def next_of(kind: Pass, chunk: int) -> Action:
        """Return the next microbatch of this pass."""
        done[kind, chunk] += 1
        return Action(kind, done[kind, chunk] - 1, chunk)

    def both_gradients(chunk: int) -> Iterator[Action]:
        """Write a whole backward pass in two parts."""
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
