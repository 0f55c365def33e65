"""Simulation of one step at several lengths, with the common part of the programs run once.

A step of fewer microbatches starts like a longer one: until a device reaches the first difference of the two programs,
all tasks and times are equal. The longest step runs; before the first device reaches a difference, a copy of the run
continues with the shorter programs to its end. The copy is small, because few tasks are live.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.events.engine.live_run import LiveRun
from forerun.simulator.events.step.compile import StepSource
from forerun.simulator.events.step.stage_order import StageOrder, stage_orders
from forerun.simulator.events.step.strategy_step import step_use
from forerun.simulator.events.step.tally import StepUse, Tally

_AHEAD = 2
"""Actions by which a run pauses before the first difference: the end of one task rarely writes more."""


def step_uses(costs: StepCosts, counts: Sequence[int]) -> list[StepUse]:
    """Return the use of steps of ``counts`` (rising) microbatches; each is bit-identical to ``step_use``.

    Raises:
        RequestError: as for ``step_use``.
    """
    sized = [replace(costs, shape=replace(costs.shape, microbatches=count)) for count in counts]
    orders = [stage_orders([list(program) for program in one.programs], len(one.chunks)) for one in sized]
    source = StepSource(sized[-1], orders=orders[-1])
    tally = Tally(source.graph)
    run = LiveRun(source, tally)
    found = []
    for one, own in zip(sized[:-1], orders[:-1], strict=True):
        parting = _parting(own, orders[-1])
        source.pause_at([place - _AHEAD for place in parting])
        run.paused = source.paused
        run.loop()
        same = all(written <= place for written, place in zip(source.written(), parting, strict=True))
        found.append(_to_its_end(run, source, own).use(one) if same else step_use(one))
    source.pause_at(())
    run.paused = False
    run.loop()
    # Only the complete graph can name tasks that wait for each other.
    return [*found, step_use(sized[-1]) if source.graph.missing else tally.use(sized[-1])]


def _parting(shorter: Sequence[StageOrder], longer: Sequence[StageOrder]) -> list[int]:
    """Return, for every device, the length of the programs' common beginning."""
    alike = all(
        [(rank, low) for rank, low, _ in some] == [(rank, low) for rank, low, _ in others]
        for some, others in zip(shorter[0].ranks_of_chunk, longer[0].ranks_of_chunk, strict=True)
    ) and all(len(ranks) == 1 for ranks in shorter[0].ranks_of_chunk)
    if not alike:  # a virtual stage on two ranks: the rank of a microbatch depends on their number
        return [0] * len(shorter)
    return [_same_actions(one, other) for one, other in zip(shorter, longer, strict=True)]


def _same_actions(one: StageOrder, other: StageOrder) -> int:
    """Return the number of equal first actions of two programs of a device.

    Actions from the last pass of a virtual stage on differ, because gradients are complete.
    """
    pairs = zip(one.program, other.program, strict=False)
    same = next((place for place, (own, its) in enumerate(pairs) if own != its), one.length)
    return min(same, *one.last.values(), *other.last.values())


def _to_its_end(run: LiveRun, source: StepSource, orders: Sequence[StageOrder]) -> Tally:
    """Return the tally of a copy of a run that continues with other programs to its end."""
    shared = source.read_only
    own: LiveRun = copy.deepcopy(run, {id(part): part for part in shared})
    assert isinstance(own.source, StepSource) and isinstance(own.watcher, Tally)  # as of the run
    own.source.go_on(orders)
    own.paused = False
    own.loop()
    return own.watcher
