"""ZB-V: two virtual stages per device laid out as a V (Qi et al., arXiv 2405.15362, section 4).

The static order for equal passes, as PyTorch's ``ScheduleZBVZeroBubble`` writes it down.
"""

from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Programs


def zb_v(shape: PipelineShape) -> Programs:
    """Return the programs of ZB-V: device d holds virtual stages d and ``2 pp - 1 - d``.

    With fewer than ``2 pp - 1`` microbatches the order is that of ``2 pp - 1`` without the missing ones.

    Raises:
        RequestError: not two virtual stages per device.
    """
    shape.require("zb-v", shape.vpp == 2, "vpp=2")
    count = max(shape.microbatches, 2 * shape.pp - 1)
    programs = [_program(shape.pp, device, count) for device in range(shape.pp)]
    return [[action for action in program if action.microbatch < shape.microbatches] for program in programs]


def _program(pp: int, device: int, count: int) -> list[Action]:
    down, up = device, 2 * pp - 1 - device
    program: list[Action] = []
    done = {(kind, chunk): 0 for kind in Pass for chunk in (down, up)}

    def run(kind: Pass, chunk: int) -> None:
        """Append the next microbatch of this pass."""
        program.append(Action(kind, done[kind, chunk], chunk))
        done[kind, chunk] += 1

    def both_gradients(chunk: int) -> None:
        """Append a whole backward pass in two parts."""
        run(Pass.INPUT_GRADIENT, chunk)
        run(Pass.WEIGHT_GRADIENT, chunk)

    for _ in range(2 * (pp - device) - 1):
        run(Pass.FORWARD, down)
    for _ in range(device):
        run(Pass.FORWARD, up)
        run(Pass.FORWARD, down)
    for _ in range(pp - device):
        run(Pass.FORWARD, up)
        both_gradients(up)
    while done[Pass.FORWARD, up] < count:
        if done[Pass.FORWARD, down] < count:
            run(Pass.FORWARD, down)
        both_gradients(down)
        run(Pass.FORWARD, up)
        both_gradients(up)
    for _ in range(device):
        run(Pass.INPUT_GRADIENT, down)
        run(Pass.INPUT_GRADIENT, up)
    for _ in range(pp - device):
        both_gradients(down)
    for chunk in (up, down):
        while done[Pass.WEIGHT_GRADIENT, chunk] < count:
            run(Pass.WEIGHT_GRADIENT, chunk)
    return program
