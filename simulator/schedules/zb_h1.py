"""ZB-H1: 1F1B whose weight gradients wait until they can fill the drain (Qi et al., arXiv 2401.10241, section 2.2)."""

from collections.abc import Iterator

from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Program, Programs


def zb_h1(shape: PipelineShape) -> Programs:
    """Return the programs of ZB-H1: the weight gradients of stage s run ``s`` microbatches late.

    So the last stage passes its first input gradients up at once, and every stage fills its drain with the weight
    gradients it owes. A stage keeps at most ``pp`` microbatches until their weight gradient, as the first stage of
    1F1B does.

    Raises:
        RequestError: more than one virtual stage per device.
    """
    shape.require("zb-h1", shape.vpp == 1, "vpp=1")
    return [Program(_program, (shape.pp, shape.microbatches, stage)) for stage in range(shape.pp)]


def _program(pp: int, count: int, stage: int) -> Iterator[Action]:
    ahead = min(pp - 1 - stage, count)
    for microbatch in range(ahead):
        yield Action(Pass.FORWARD, microbatch, stage)
    for microbatch in range(count):
        if microbatch + ahead < count:
            yield Action(Pass.FORWARD, microbatch + ahead, stage)
        yield Action(Pass.INPUT_GRADIENT, microbatch, stage)
        if microbatch >= stage:
            yield Action(Pass.WEIGHT_GRADIENT, microbatch - stage, stage)
    for microbatch in range(max(count - stage, 0), count):
        yield Action(Pass.WEIGHT_GRADIENT, microbatch, stage)
