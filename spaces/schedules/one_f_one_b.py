"""1F1B, flushed every step (PipeDream-Flush; Narayanan et al., arXiv 2104.04473, section 2.2)."""

from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.schedules.contract import Keeping, PipelineSchedule, PipelineShape, Programs
from forerun.spaces.schedules.limited import limited
from forerun.spaces.schedules.stage_times import Floats, StageTimes, excess, total_over_stages

VOCABULARY_BARRIERS = MappingProxyType({"vocab-1": (1.0, 2.0), "vocab-2": (1.0, 1.0), "interlaced": (1.5, 0.0)})
"""Factor on in-flight microbatches, and number of additional ones, by placement of the vocabulary. With a part of it on
every stage one microbatch is added for each barrier; interlaced placement has 1.5 times as many (arXiv 2411.05288)."""

_SLOWEST = 0.99
"""Passes in relation to the longest from which stages count as slowest."""


class OneFOneB(PipelineSchedule):
    """``pp - 1 - stage`` warm-up forward passes, followed by alternating forward and backward passes."""

    number = 0
    name = "1f1b"
    spelling = MappingProxyType({"torch": "1F1B", "olmo-core": "single_1F1B", "nanotron": "1f1b"})
    whole_stages = True

    def programs(self, shape: PipelineShape) -> Programs:
        """Return the programs."""
        shape.require(self.name, shape.vpp == 1, "vpp=1")
        return limited(shape, range(shape.pp + shape.ahead, shape.ahead, -1))

    def bubble_s(self, stages: StageTimes, pp: Floats, vpp: Floats, microbatches: Floats) -> Floats:
        """Return the bubble of each run's stage that ends last, the first or the last of the run.

        With equal stages it is ``(pp - 1) t``, t the passes of one microbatch.
        """
        # Stage s, with passes f_s and b_s, d = pp - 1 - s later stages and m microbatches:
        #   start   its first forward pass follows those of earlier stages:                  sum_(i<s) f_i
        #   fill    its first microbatch is on later stages for A = sum_(i>s) (f_i + b_i),
        #           during which it runs the n = min(d, m - 1) forward passes it may keep,
        #           each after h seconds of the host (counted elsewhere):                   wait max(0, A - n (f_s + h))
        #   steady  one forward and one backward pass per microbatch, m of each in total:    m (f_s + b_s)
        #   drain   its last microbatch is also on later stages for A, during which it
        #           runs the n remaining backward passes:                                    wait max(0, A - n b_s)
        #   end     its last gradient passes through earlier stages:                         sum_(i<s) b_i
        # The step is the largest sum over s. With equal stages A = d (f + b): fill and drain are d b and d f, start
        # and end s f and s b, with the known sum (pp - 1)(f + b). With m <= d + 1 there is no steady state: all
        # forward passes precede all backward ones, so the two waits are one. Along a run of equal stages every term is
        # linear in s or the maximum of two linear terms, so one of the two ends of the run decides.
        forward, backward = stages.forward_s, stages.backward_s
        both, count = forward + backward, stages.multiplicity
        before, after = np.zeros_like(both), np.zeros_like(both)
        for row in range(1, len(both)):
            before[row] = before[row - 1] + count[row - 1] * both[row - 1]
        for row in reversed(range(len(both) - 1)):
            after[row] = after[row + 1] + count[row + 1] * both[row + 1]
        within = np.maximum(count - 1, 0.0)
        waits = []
        for skipped in (np.zeros_like(within), within):
            last_s = after + (within - skipped) * both
            deeper = pp - 1 - stages.first - skipped
            flight = np.minimum(deeper, microbatches - 1)
            fill = np.maximum(last_s - flight * (forward + stages.prepare_s), 0.0)
            drain = np.maximum(last_s - flight * backward, 0.0)
            # Where no forward pass follows the first backward pass, the two waits are one.
            wait = np.where(microbatches > deeper + 1, fill + drain, np.maximum(fill, drain))
            waits.append(before + skipped * both + wait)
        return np.asarray(np.maximum(*waits))

    def in_flight(
        self, stage: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, uneven: Floats | float, memory: Keeping
    ) -> Floats:
        """Return ``pp - stage``, plus one for each additional warm-up pass (arXiv 2104.04473, section 2.2)."""
        kept = pp - stage + memory.ahead
        more = VOCABULARY_BARRIERS.get(memory.vocabulary)
        return kept if more is None else np.where(pp > 1, np.ceil(kept * more[0]) + more[1], kept)

    def exposed_p2p(self, pp: Floats, vpp: Floats, microbatches: Floats, *, overlap: bool) -> Floats:
        """Return the exposed transfers: in the steady state a stage waits for the reply to its last message."""
        if not overlap:
            return super().exposed_p2p(pp, vpp, microbatches, overlap=False)
        return np.maximum(2 * (pp - 1), 2 * (pp - 1) * microbatches / pp + 2 * (pp - 2))

    def steady_s(self, stages: StageTimes, pp: Floats) -> tuple[Floats, Floats]:
        """Return the mean over stages, and the number of slowest ones."""
        both = stages.forward_s + stages.backward_s
        slow = both >= _SLOWEST * stages.pace_s
        return total_over_stages(stages.multiplicity, both) / pp, (slow * stages.multiplicity).sum(axis=0)

    def spare_s(self, stages: StageTimes, pp: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return the excess of each end, in both directions at once."""
        both = stages.forward_s + stages.backward_s
        return excess(both, stages, -1) + excess(both, stages, 0), np.zeros_like(pp), pp > 2
