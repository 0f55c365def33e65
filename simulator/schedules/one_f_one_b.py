"""1F1B, flushed every step (PipeDream-Flush; Narayanan et al., arXiv 2104.04473, section 2.2)."""

from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Programs


def one_f_one_b(shape: PipelineShape) -> Programs:
    """Return the programs of 1F1B: ``pp - 1 - stage`` forwards to warm up, then one forward, one backward in turn.

    Raises:
        RequestError: more than one virtual stage per device.
    """
    shape.require("1f1b", shape.vpp == 1, "vpp=1")
    count = shape.microbatches
    programs: Programs = []
    for stage in range(shape.pp):
        ahead = min(shape.pp - 1 - stage, count)
        program = [Action(Pass.FORWARD, microbatch, stage) for microbatch in range(ahead)]
        for microbatch in range(count):
            if microbatch + ahead < count:
                program.append(Action(Pass.FORWARD, microbatch + ahead, stage))
            program.append(Action(Pass.BACKWARD, microbatch, stage))
        programs.append(program)
    return programs
