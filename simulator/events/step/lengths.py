"""One step in several lengths: what programs have in common is run once.

A step of fewer microbatches begins like a longer one: until a device comes to where the two programs part, all tasks
and all times are the same. So the longest step runs; before the first device gets there a copy of the run is made, and
goes on with the shorter programs to its end. Live tasks are few, and so is what is copied.
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
"""Actions before the place where programs part at which a run pauses: the end of one task seldom writes more."""


def step_uses(costs: StepCosts, counts: Sequence[int]) -> list[StepUse]:
    """Return how steps of ``counts`` microbatches, rising, are spent; each to the last bit as ``step_use`` says.

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
    # Tasks that wait for each other are named by the whole graph.
    return [*found, step_use(sized[-1]) if source.graph.missing else tally.use(sized[-1])]


def _parting(shorter: Sequence[StageOrder], longer: Sequence[StageOrder]) -> list[int]:
    """Return the place in the program of every device up to which a step may be any of two."""
    alike = all(
        [(rank, low) for rank, low, _ in some] == [(rank, low) for rank, low, _ in others]
        for some, others in zip(shorter[0].ranks_of_chunk, longer[0].ranks_of_chunk, strict=True)
    ) and all(len(ranks) == 1 for ranks in shorter[0].ranks_of_chunk)
    if not alike:  # a virtual stage on two ranks: which of them has a microbatch depends on how many there are
        return [0] * len(shorter)
    return [_same_actions(one, other) for one, other in zip(shorter, longer, strict=True)]


def _same_actions(one: StageOrder, other: StageOrder) -> int:
    """Return how many actions two programs of a device begin with that are the same, and mean the same: from the last
    pass through a virtual stage on, gradients are whole."""
    pairs = zip(one.program, other.program, strict=False)
    same = next((place for place, (own, its) in enumerate(pairs) if own != its), one.length)
    return min(same, *one.last.values(), *other.last.values())


def _to_its_end(run: LiveRun, source: StepSource, orders: Sequence[StageOrder]) -> Tally:
    """Return what a copy of a run comes to that goes on with other programs."""
    shared = source.read_only
    own: LiveRun = copy.deepcopy(run, {id(part): part for part in shared})
    assert isinstance(own.source, StepSource) and isinstance(own.watcher, Tally)  # as of the run
    own.source.go_on(orders)
    own.paused = False
    own.loop()
    return own.watcher
