"""Alternating passes with limits on in-flight microbatches; 1F1B and GPipe are special cases."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from forerun.spaces.schedules.contract import Action, Pass, PipelineShape, Program, Programs


def limited(shape: PipelineShape, in_flight: Sequence[int]) -> Programs:
    """Return programs in which stage s has at most ``in_flight[s]`` in-flight microbatches.

    A stage runs forward passes up to the limit, and a backward pass before each further one (Proteus' scheduling rule,
    arXiv 2306.02267: ``pp - s`` on stage s is 1F1B, all microbatches are GPipe). A stage never keeps more microbatches
    than the previous one, which stops sending.

    Raises:
        RequestError: more than one virtual stage per device, a wrong number of limits, or a limit below 1.
    """
    shape.require("with in-flight limits", shape.vpp == 1, "vpp=1")
    shape.require("with in-flight limits", len(in_flight) == shape.pp, f"one limit for each of {shape.pp} stages")
    shape.require("with in-flight limits", min(in_flight) >= 1, "limits of at least 1")
    limits = enumerate(accumulate(in_flight, min))
    return [Program(_program, (shape.microbatches, stage, limit)) for stage, limit in limits]


def _program(count: int, stage: int, limit: int) -> Iterator[Action]:
    ahead = min(limit - 1, count)
    for microbatch in range(ahead):
        yield Action(Pass.FORWARD, microbatch, stage)
    for microbatch in range(count):
        if microbatch + ahead < count:
            yield Action(Pass.FORWARD, microbatch + ahead, stage)
        yield Action(Pass.BACKWARD, microbatch, stage)
