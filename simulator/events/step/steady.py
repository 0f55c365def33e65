"""Long steps extrapolated from shorter ones: a pipeline in its steady state is periodic.

Starts and ends of tasks that only wait for each other are a max-plus linear system. Such a system is periodic after a
finite start (Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, chapter 3): equal numbers of further
microbatches add equal times. The period is searched, not assumed. A step that grows by less than the work of its
busiest stream is not yet periodic, however evenly it grows, since another path may become the longest. Where every
microbatch has replica traffic (ZeRO 2 and 3), a stream runs the first ready task, which is not linear; such steps are
simulated in full. Transfers of stages that share links are not linear either, but repeat exactly or nearly like their
passes: 387 of 387 random steps with contention equalled the full simulation, and one in a test, with three kinds of
replicas that drift against each other, was 0.1 % too long.

The lengths are simulated with the common part of their programs run once. A step of fewer microbatches starts like a
longer one: until a device reaches the first difference of the two programs, all tasks and times are equal. The longest
step runs; before the first device reaches a difference, a copy of the run continues with the shorter programs to its
end. The copy is small, because few tasks are live.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

from forerun.simulator.assignment.costs import StepCosts
from forerun.simulator.events.engine.live_run import LiveRun
from forerun.simulator.events.step.compile import StepSource
from forerun.simulator.events.step.contention import Contention
from forerun.simulator.events.step.stage_order import StageOrder, stage_orders
from forerun.simulator.events.step.strategy_step import step_use
from forerun.simulator.events.step.tally import StepUse, Tally
from forerun.simulator.score_table import TIME_PARTS

_SAME = 1e-9
"""Relative difference up to which two increments are equal: the required exactness of the closed forms."""
_FIRST = 4
"""Microbatches of the first attempt, in units of the pipeline's depth; filling takes one, draining another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """Figures of a step that grow linearly with its microbatches once it is long.

    Step time, its parts at the slowest rank (``TIME_PARTS``), occupation of every stream, and the peak of live tensors
    of every rank.
    """

    step_time_s: float
    time_s: tuple[float, ...]
    occupied_s: tuple[float, ...]
    peaks_bytes: tuple[float, ...]

    @property
    def peak_bytes(self) -> float:
        """Largest peak of any rank."""
        return max(self.peaks_bytes)

    @property
    def fullest(self) -> int:
        """The (first) rank with the largest peak."""
        return self.peaks_bytes.index(self.peak_bytes)


def step_figures(costs: StepCosts, contention: Contention | None = None) -> StepFigures:
    """Return the figures of a step, from three shorter steps where it is long and they are periodic.

    ``contention``: links shared by its traffic, None for ports only.

    Raises:
        RequestError: the schedule has no order for the shape.
    """
    count, period = costs.shape.microbatches, costs.shape.pp
    first = _FIRST * costs.shape.pp + count % period
    while costs.zero < min(3, costs.reduced_each_from) and 2 * (first + 2 * period) < count:
        counts = [first + turn * period for turn in range(3)]
        if contention is None:
            figures = [figures_of(use) for use in step_uses(costs, counts)]
        else:
            figures = [_simulated(costs, count, contention) for count in counts]
        if _even(figures):
            return _extended(figures, (count - first) / period)
        first += (first // period + 1) * period
    return _simulated(costs, count, contention)


def _simulated(costs: StepCosts, microbatches: int, contention: Contention | None) -> StepFigures:
    shorter = replace(costs, shape=replace(costs.shape, microbatches=microbatches))
    if contention is None:
        return figures_of(step_use(shorter))
    return figures_of(step_use(shorter, replicas=contention.simulated, contention=contention))


def figures_of(result: StepUse) -> StepFigures:
    """Return the figures of a step that was simulated in full."""
    pp, peaks = result.costs.shape.pp, [stage.peak_bytes for stage in result.stages]
    return StepFigures(
        step_time_s=result.step_time_s,
        time_s=tuple(result.time_s[part] for part in TIME_PARTS),
        occupied_s=tuple(result.occupied_s),
        peaks_bytes=tuple(max(peaks[rank::pp]) for rank in range(pp)),
    )


def _even(figures: list[StepFigures]) -> bool:
    """Check whether every figure grows by the same twice, and the step by no less than any stream's tasks."""
    low, middle, high = ([one.step_time_s, *one.time_s, *one.peaks_bytes] for one in figures)
    reference = (*[high[0]] * (1 + len(TIME_PARTS)), *figures[-1].peaks_bytes)
    grown = zip(low, middle, high, reference, strict=True)
    same = all(abs((c - b) - (b - a)) <= _SAME * size for a, b, c, size in grown)
    busiest_s = max(b - a for a, b in zip(figures[-2].occupied_s, figures[-1].occupied_s, strict=True))
    reached = high[0] - middle[0] >= busiest_s - _SAME * high[0]
    return same and reached and len({one.fullest for one in figures}) == 1


def _extended(figures: list[StepFigures], periods: float) -> StepFigures:
    """Return the figures ``periods`` periods after the first."""
    low, high = figures[0], figures[-1]
    turns = periods / (len(figures) - 1)
    return StepFigures(
        step_time_s=low.step_time_s + turns * (high.step_time_s - low.step_time_s),
        time_s=tuple(a + turns * (b - a) for a, b in zip(low.time_s, high.time_s, strict=True)),
        occupied_s=tuple(a + turns * (b - a) for a, b in zip(low.occupied_s, high.occupied_s, strict=True)),
        peaks_bytes=tuple(a + turns * (b - a) for a, b in zip(low.peaks_bytes, high.peaks_bytes, strict=True)),
    )


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
    uses = []
    for one, order in zip(sized[:-1], orders[:-1], strict=True):
        parting = _parting(order, orders[-1])
        source.pause_at([place - _AHEAD for place in parting])
        run.paused = source.paused
        run.loop()
        same = all(written <= place for written, place in zip(source.written(), parting, strict=True))
        uses.append(_to_its_end(run, source, order).use(one) if same else step_use(one))
    source.pause_at(())
    run.paused = False
    run.loop()
    # Only the complete graph can name tasks that wait for each other.
    return [*uses, step_use(sized[-1]) if source.graph.missing else tally.use(sized[-1])]


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
    """Return the number of equal first actions of two programs of a device."""
    # Actions from the last pass of a virtual stage on differ, because gradients are complete.
    pairs = zip(one.program, other.program, strict=False)
    same = next((place for place, (mine, its) in enumerate(pairs) if mine != its), one.length)
    return min(same, *one.last.values(), *other.last.values())


def _to_its_end(run: LiveRun, source: StepSource, orders: Sequence[StageOrder]) -> Tally:
    """Return the tally of a copy of a run that continues with other programs to its end."""
    shared = source.read_only
    branch: LiveRun = copy.deepcopy(run, {id(part): part for part in shared})
    assert isinstance(branch.source, StepSource) and isinstance(branch.watcher, Tally)  # as of the run
    branch.source.go_on(orders)
    branch.paused = False
    branch.loop()
    return branch.watcher
