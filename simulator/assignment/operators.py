"""Operators of one step of an assignment on its busiest rank, with the bound of each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.assignment.passes import shard_with
from forerun.simulator.assignment.value import Assignment
from forerun.simulator.layer.blocks import embedding_operators, head_operators, layer_operators
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.work import Bound, OperatorTime, joined_by_name
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies import Context, Recompute, Strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPass:
    """All passes of one operator in one direction."""

    seconds: float
    """Seconds per step."""
    share: float
    """Share (0 to 1) of the nearer peak, tensor cores or memory bandwidth."""
    bound: Bound
    """Its bottleneck."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOperator:
    """One operator on the busiest rank."""

    name: str
    forward: OperatorPass | None
    """None without a forward pass."""
    backward: OperatorPass | None
    """Both gradients, including recompute; None without them."""

    @property
    def seconds(self) -> float:
        """Seconds of all its passes in a step."""
        return sum(one.seconds for one in (self.forward, self.backward) if one is not None)


def busiest_rank_operators(assignment: Assignment) -> tuple[int, tuple[RankOperator, ...]]:
    """Return the rank with the longest computation, and its operators, most seconds per step first.

    Communication, optimizer and waits are separate parts of the step.

    Raises
    ------
    RequestError
        A cost rule does not know an operator or precision.
    """
    # A rank of DualPipe runs each of its two stages for half of the microbatches.
    microbatches = assignment.shape.microbatches / schedule_of(assignment.schedule).streams
    ranks: list[list[OperatorTime]] = [[] for _ in assignment.group_of_rank]
    # Seconds of an operator on a rank and step: layers [B, P] of its block times microbatches, times the seconds of one
    # pass with the block's settings on the rank's devices.
    for settings, held in assignment.blocks().items():
        on = assignment.on_ranks(held) * microbatches
        for group, context in enumerate(assignment.contexts):
            own = [rank for rank, of in enumerate(assignment.group_of_rank) if of == group]
            for kind in np.flatnonzero(on[:, own].sum(axis=1)):
                operators = list(_of_block(context, settings, int(kind)))
                for rank in own:
                    ranks[rank] += [one * float(on[kind, rank]) for one in operators if on[kind, rank]]
    busiest = max(range(len(ranks)), key=lambda rank: (sum(float(one.seconds) for one in ranks[rank]), -rank))
    context = assignment.contexts[assignment.group_of_rank[busiest]]
    by_name: dict[str, list[OperatorTime]] = {}
    for one in joined_by_name(ranks[busiest]):
        by_name.setdefault(one.name, []).append(one)
    found = [
        RankOperator(
            name=name,
            forward=_pass(context, [one for one in records if one.direction == "forward"]),
            backward=_pass(context, [one for one in records if one.direction != "forward"]),
        )
        for name, records in by_name.items()
    ]
    return busiest, tuple(sorted(found, key=lambda one: -one.seconds))


def _pass(context: Context, records: list[OperatorTime]) -> OperatorPass | None:
    if not records:
        return None
    first, *others = records
    total = sum(others, first)
    return OperatorPass(
        seconds=float(total.seconds), share=float(total.share_of_peak()), bound=total.bound(context.cluster.device)
    )


def _of_block(context: Context, settings: Strategy, kind: int) -> Iterator[OperatorTime]:
    """Yield the operators of one block on one microbatch as scalar records, recomputed ones once more for backward."""
    shard, kinds = shard_with(context, settings), layer_kinds(context.model)
    if kind < len(kinds):
        operators = layer_operators(context, kinds[kind], shard)
    else:
        operators = (embedding_operators if kind == len(kinds) else head_operators)(context, shard)
    for one in operators.records:
        whole = one.at(0)
        yield whole
        if one.direction == "forward" and kind < len(kinds):
            times = _times_repeated(one, settings.recompute)
            if times:
                yield replace(whole, direction="input_gradient") * float(times)


def _times_repeated(one: OperatorTime, recompute: Recompute) -> int:
    """Count the repetitions of a forward operator by recompute.

    An operator is repeated once with its layer, unless recomputation ends before it, or once with each of its named
    modules.
    """
    if recompute == Recompute.FULL:
        return int(not one.not_recomputed)
    modules = (module for module in one.modules if recompute & module)
    return int(one.repeated and bool(recompute & Recompute.SELECTIVE)) + len(list(modules))
