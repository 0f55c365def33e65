"""Interleaved 1F1B over several virtual stages per device, in the order of Megatron-LM (arXiv 2104.04473, 2.2.2)."""

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Program, Programs

Turn = TypeVar("Turn", int, NDArray[np.int64])


def interleaved(shape: PipelineShape) -> Programs:
    """Return the programs: microbatches go in groups of ``pp`` through one virtual stage of a device after the other.

    A pipeline rank runs ``2 (pp - 1 - stage) + (vpp - 1) pp`` forwards to warm up (Megatron-LM's
    ``forward_backward_pipelining_with_interleaving``).

    Raises:
        RequestError: microbatches are not a multiple of pp, or there is one virtual stage per device only.
    """
    shape.require("interleaved", shape.vpp > 1, "vpp > 1 (use 1f1b)")
    shape.require("interleaved", shape.microbatches % shape.pp == 0, f"a multiple of {shape.pp} microbatches")
    return [Program(_program, (shape, stage)) for stage in range(shape.pp)]


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
    """Return a device's program [2 vpp microbatches] as numbers: of a pass, its virtual stage (beyond their number if
    backward) times all microbatches, plus its own."""
    pp, vpp, total = shape.pp, shape.vpp, shape.microbatches * shape.vpp
    ahead = min(2 * (pp - 1 - stage) + (vpp - 1) * pp + shape.ahead, total)
    turn = np.arange(total)
    microbatch, chunk = _turn(shape, turn, stage)
    program = np.empty(2 * total, dtype=np.int64)
    program[np.where(turn < ahead, turn, 2 * turn - ahead)] = chunk * shape.microbatches + microbatch
    back = (2 * vpp - 1) * pp + 2 * stage - chunk
    program[np.minimum(ahead + 2 * turn + 1, total + turn)] = back * shape.microbatches + microbatch
    return program


def _turn(shape: PipelineShape, turn: Turn, stage: int) -> tuple[Turn, Turn]:
    """Return microbatch and virtual stage of a device's forward pass number ``turn``, or of many."""
    group, inside = divmod(turn, shape.pp * shape.vpp)
    lap, member = divmod(inside, shape.pp)
    return group * shape.pp + member, lap * shape.pp + stage
