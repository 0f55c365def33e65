"""GPipe: all forward passes, then all backward passes (Huang et al., arXiv 1811.06965, figure 2)."""

from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Programs


def gpipe(shape: PipelineShape) -> Programs:
    """Return the programs of GPipe; microbatches come back in reverse, as its implementations run them.

    Raises:
        RequestError: more than one virtual stage per device.
    """
    shape.require("gpipe", shape.vpp == 1, "vpp=1")
    count = shape.microbatches
    return [
        [
            *(Action(Pass.FORWARD, microbatch, stage) for microbatch in range(count)),
            *(Action(Pass.BACKWARD, microbatch, stage) for microbatch in reversed(range(count))),
        ]
        for stage in range(shape.pp)
    ]
