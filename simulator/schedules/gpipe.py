"""GPipe: all forward passes, then all backward passes (Huang et al., arXiv 1811.06965, figure 2)."""

from collections.abc import Iterator

from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Program, Programs


def gpipe(shape: PipelineShape) -> Programs:
    """Return the programs of GPipe; microbatches come back in reverse, as its implementations run them.

    Raises:
        RequestError: more than one virtual stage per device.
    """
    shape.require("gpipe", shape.vpp == 1, "vpp=1")
    return [Program(_program, (shape.microbatches, stage)) for stage in range(shape.pp)]


def _program(count: int, stage: int) -> Iterator[Action]:
    for microbatch in range(count):
        yield Action(Pass.FORWARD, microbatch, stage)
    for microbatch in reversed(range(count)):
        yield Action(Pass.BACKWARD, microbatch, stage)
