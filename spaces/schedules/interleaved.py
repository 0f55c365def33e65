"""Interleaved 1F1B over several virtual stages per device, in the order of Megatron-LM (arXiv 2104.04473, 2.2.2)."""

from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.schedules.contract import (
    Action,
    IntArray,
    Keeping,
    Pass,
    PipelineSchedule,
    PipelineShape,
    Program,
    Programs,
)
from forerun.spaces.schedules.stage_times import Floats, StageTimes, total_over_stages

Turn = TypeVar("Turn", int, NDArray[np.int64])
Count = TypeVar("Count", int, Floats)


class Interleaved(PipelineSchedule):
    """Interleaved 1F1B: groups of ``pp`` microbatches pass through one virtual stage of a rank after the other."""

    number = 1
    name = "interleaved"
    spelling = MappingProxyType({"torch": "Interleaved1F1B", "olmo-core": "interleaved_1F1B"})
    fewest_virtual = 2
    most_virtual = np.inf
    shape_law = "vpp>1"
    microbatch_law = "a multiple of pp"
    in_rounds = True

    def programs(self, shape: PipelineShape) -> Programs:
        """Return the programs, with ``2 (pp - 1 - stage) + (vpp - 1) pp`` warm-up forward passes per rank.

        The order is that of Megatron-LM's ``forward_backward_pipelining_with_interleaving``.
        """
        shape.require(self.name, shape.vpp > 1, "vpp > 1 (use 1f1b)")
        shape.require(self.name, shape.microbatches % shape.pp == 0, f"a multiple of {shape.pp} microbatches")
        return [Program(_program, (shape, stage)) for stage in range(shape.pp)]

    def bubble_s(self, stages: StageTimes, pp: Floats, vpp: Floats, microbatches: Floats) -> Floats:
        """Return the seconds of filling and draining, each ``1 / vpp`` of a stage per step of the pipeline.

        Waits of virtual stages with unequal layers are computed from the longest path through their order
        (``simulator/pipeline/interleaved.py``).
        """
        both = stages.forward_s + stages.backward_s
        longest = np.where(stages.multiplicity > 0, both, 0.0).max(axis=0)
        waits_s = (total_over_stages(stages.multiplicity, both) - longest) / vpp
        return np.broadcast_to(waits_s, both.shape)

    def in_flight(
        self, stage: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, uneven: Floats | float, memory: Keeping
    ) -> Floats:
        """Return ``2 (pp - stage - 1) + (vpp - 1) pp + 1`` parts of ``1 / vpp`` stage."""
        return np.asarray((warm_up(pp, vpp, stage) + memory.ahead) / vpp * uneven)

    def exposed_p2p(self, pp: Floats, vpp: Floats, microbatches: Floats, *, overlap: bool) -> Floats:
        """Return the transfers that fill and drain the pipeline in ``vpp`` rounds."""
        crossings = 2 * (pp * vpp - 1)
        return crossings if overlap else np.maximum(crossings, (2 * vpp - 1) * microbatches + 2 * pp - 3)

    def illegal_microbatches(self, pp: IntArray, microbatches: IntArray) -> NDArray[np.bool_]:
        """Mark the rows whose microbatches are not a multiple of pp."""
        return np.asarray(microbatches % pp != 0)


def _program(shape: PipelineShape, stage: int) -> Iterator[Action]:
    pp, vpp, total = shape.pp, shape.vpp, shape.microbatches * shape.vpp
    ahead = min(2 * (pp - 1 - stage) + (vpp - 1) * pp + shape.ahead, total)
    for turn in range(ahead):
        yield Action(Pass.FORWARD, *_turn(shape, turn, stage))
    for turn in range(total):
        if turn + ahead < total:
            yield Action(Pass.FORWARD, *_turn(shape, turn + ahead, stage))
        microbatch, chunk = _turn(shape, turn, stage)
        yield Action(Pass.BACKWARD, microbatch, (vpp - 1) * pp + 2 * stage - chunk)


def numbered(shape: PipelineShape, stage: int) -> NDArray[np.int64]:
    """Return a device's program [2 vpp microbatches] as numbers.

    The number of a pass is its virtual stage (plus their count if backward) times all microbatches, plus its
    microbatch.
    """
    pp, vpp, total = shape.pp, shape.vpp, shape.microbatches * shape.vpp
    ahead = min(2 * (pp - 1 - stage) + (vpp - 1) * pp + shape.ahead, total)
    turn = np.arange(total)
    microbatch, chunk = _turn(shape, turn, stage)
    program = np.empty(2 * total, dtype=np.int64)
    program[np.where(turn < ahead, turn, 2 * turn - ahead)] = chunk * shape.microbatches + microbatch
    offset = (2 * vpp - 1) * pp + 2 * stage - chunk
    program[np.minimum(ahead + 2 * turn + 1, total + turn)] = offset * shape.microbatches + microbatch
    return program


def _turn(shape: PipelineShape, turn: Turn, stage: int) -> tuple[Turn, Turn]:
    """Return microbatch and virtual stage of a device's forward pass number ``turn``, or of many."""
    group, inside = divmod(turn, shape.pp * shape.vpp)
    lap, member = divmod(inside, shape.pp)
    return group * shape.pp + member, lap * shape.pp + stage


def warm_up(pp: Count, vpp: Count, stage: Count) -> Count:
    """Return the number of virtual-stage passes whose activations an interleaved pipeline keeps."""
    return 2 * (pp - stage - 1) + (vpp - 1) * pp + 1


def peak_in_flight_factor(layers: Sequence[float], pp: int, stage: int, ahead: int) -> float:
    """Return the peak number of layers with kept activations on a pipeline rank, relative to equal chunks.

    ``layers``: layers of its virtual stages in model order; ``ahead``: see ``in_flight``. Passes run in rounds of
    ``pp`` microbatches, backward ones in reverse order (Megatron-LM's schedule): at its peak a rank keeps the first
    virtual stages twice and the last ones not at all."""
    if len(set(layers)) == 1:
        return 1.0
    passes = warm_up(pp, len(layers), stage) + ahead
    rounds = np.repeat(np.asarray(layers, dtype=np.float64), pp)
    forward = np.concatenate(([0.0], np.cumsum(np.tile(rounds, 5))))
    backward = np.concatenate(([0.0], np.cumsum(np.tile(rounds[::-1], 2))))
    kept = forward[passes : passes + len(backward)] - backward
    return float(kept.max() / (passes * rounds.mean()))
