"""GPipe: all forward passes, followed by all backward passes (Huang et al., arXiv 1811.06965, figure 2)."""

from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.schedules.contract import (
    Action,
    Keeping,
    Pass,
    PipelineSchedule,
    PipelineShape,
    Program,
    Programs,
)
from forerun.spaces.schedules.stage_times import Floats, StageTimes, excess, total_over_stages


class GPipe(PipelineSchedule):
    """All forward passes, followed by all backward passes."""

    number = 2
    name = "gpipe"
    spelling = MappingProxyType({"torch": "GPipe", "olmo-core": "gpipe", "nanotron": "afab", "simumax": "gpipe"})
    whole_stages = True
    forwards_first = True

    def programs(self, shape: PipelineShape) -> Programs:
        """Return the programs; backward passes run in reverse order of microbatches, as in implementations."""
        shape.require(self.name, shape.vpp == 1, "vpp=1")
        return [Program(_program, (shape.microbatches, stage)) for stage in range(shape.pp)]

    def bubble_s(self, stages: StageTimes, pp: Floats, vpp: Floats, microbatches: Floats) -> Floats:
        """Return the exact bubble: in each direction the slowest stage limits the rate of microbatches."""
        # The first microbatch reaches the end after sum_i f_i, each of the m - 1 others max f later (a flow line).
        # Backward passes are equal: sum_i (f_i + b_i) + (m - 1)(max f + max b). The last term counts for the busiest
        # stage, and less for stages with less work.
        slowest = stages.forward_s.max(axis=0) + stages.backward_s.max(axis=0)
        both = stages.forward_s + stages.backward_s
        step_s = total_over_stages(stages.multiplicity, both) + (microbatches - 1) * slowest - (both.max(axis=0) - both)
        return np.asarray(step_s - microbatches * both)

    def in_flight(
        self, stage: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, uneven: Floats | float, memory: Keeping
    ) -> Floats:
        """Return all microbatches."""
        return microbatches

    def exposed_p2p(self, pp: Floats, vpp: Floats, microbatches: Floats, *, overlap: bool) -> Floats:
        """Return all blocking transfers, which are sequential in each direction."""
        crossings = 2 * (pp - 1)
        return crossings if overlap else np.maximum(crossings, 2 * (microbatches + pp - 2))

    def spare_s(self, stages: StageTimes, pp: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return the excess of the last stage forward and of the first stage backward."""
        return excess(stages.forward_s, stages, -1), excess(stages.backward_s, stages, 0), pp > 1

    def unpaired_share(self, pp: Floats, microbatches: Floats) -> Floats:
        """Return all passes."""
        return np.ones_like(pp)


def _program(count: int, stage: int) -> Iterator[Action]:
    for microbatch in range(count):
        yield Action(Pass.FORWARD, microbatch, stage)
    for microbatch in reversed(range(count)):
        yield Action(Pass.BACKWARD, microbatch, stage)
