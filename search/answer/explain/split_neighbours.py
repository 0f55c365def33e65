"""Neighbours of an operator graph's split in one property, on the same devices."""

from collections.abc import Iterator

from forerun.search.board.changes import ScoredChange
from forerun.search.board.rows import rows_of
from forerun.search.request.scorer import Scorer
from forerun.simulator import score as simulator_score
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.space import split_space
from forerun.simulator.opgraph.table import AnySplit
from forerun.spaces.opgraph.split import Mode, Split


def split_changes(
    context: GraphContext,
    split: AnySplit,
    *,
    usd_per_gpu_hour: float | None = None,
    score: Scorer = simulator_score,
) -> tuple[ScoredChange, ...]:
    """Return the changes of one property, fastest first; none for a mixture, which has no neighbours in the searched
    space.
    """
    if not isinstance(split, Split):
        return ()
    found = list(_neighbours(context, split))
    row, *others = rows_of(
        context, [split, *(other for _, other in found)], usd_per_gpu_hour=usd_per_gpu_hour, score=score
    )
    changes = [
        ScoredChange(axis=axis, words=f"{split} -> {other}", row=changed, added_s=changed.step_time_s - row.step_time_s)
        for (axis, other), changed in zip(found, others, strict=True)
    ]
    return tuple(sorted(changes, key=lambda change: change.added_s))


def _neighbours(context: GraphContext, split: Split) -> Iterator[tuple[str, Split]]:
    space = split_space(context, [split.devices], list(Mode))
    for other, broken in zip(space.splits, space.reasons, strict=True):
        axes = _different(split, other)
        if not broken and len(axes) == 1:
            yield axes[0], other


def _different(one: Split, other: Split) -> list[str]:
    """Describe the difference of two splits on the same devices; replicas follow from the parts."""
    axes = ["mode"] if one.mode is not other.mode else []
    # Data parallelism has one part: a change from it changes both at once.
    if (one.parts, one.grid) != (other.parts, other.grid) and not (axes and 1 in (one.parts, other.parts)):
        axes.append("parts")
    named = (("segments", "segments"), ("mixed", "mixed"), ("spread", "tables"))
    return axes + [word for field, word in named if getattr(one, field) != getattr(other, field)]
