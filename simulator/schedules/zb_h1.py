"""ZB-H1: 1F1B whose weight gradients wait until they can fill the drain (Qi et al., arXiv 2401.10241, section 2.2)."""

from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Programs


def zb_h1(shape: PipelineShape) -> Programs:
    """Return the programs of ZB-H1: the weight gradients of stage s run ``s`` microbatches late.

    So the last stage passes its first input gradients up at once, and every stage fills its drain with the weight
    gradients it owes. A stage keeps at most ``pp`` microbatches until their weight gradient, as the first stage of
    1F1B does.

    Raises:
        RequestError: more than one virtual stage per device.
    """
    shape.require("zb-h1", shape.vpp == 1, "vpp=1")
    count = shape.microbatches
    programs: Programs = []
    for stage in range(shape.pp):
        ahead = min(shape.pp - 1 - stage, count)
        program = [Action(Pass.FORWARD, microbatch, stage) for microbatch in range(ahead)]
        for microbatch in range(count):
            if microbatch + ahead < count:
                program.append(Action(Pass.FORWARD, microbatch + ahead, stage))
            program.append(Action(Pass.INPUT_GRADIENT, microbatch, stage))
            if microbatch >= stage:
                program.append(Action(Pass.WEIGHT_GRADIENT, microbatch - stage, stage))
        owed = range(max(count - stage, 0), count)
        program += [Action(Pass.WEIGHT_GRADIENT, microbatch, stage) for microbatch in owed]
        programs.append(program)
    return programs
