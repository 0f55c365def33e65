"""Comparison of the user's current run of an operator graph (a split and a step time) with the best row."""

from collections.abc import Iterator, Sequence
from typing import Any

from forerun.search.answer.baseline.compare import comparison_text, measured_step
from forerun.search.answer.baseline.present import Present, seconds_of
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.requested import Baseline, ScoredChange
from forerun.search.board.rows import rows_of
from forerun.search.request.operator_graphs import OPERATOR_GRAPHS
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.simulator import score as simulator_score
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.space import split_space
from forerun.simulator.opgraph.table import AnySplit
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.split import Mode, Split

HELPING = 3
"""Most changes shown."""


def read_split(setting: Setting[GraphContext], named: Sequence[str], measured: str | None) -> Present:
    """Return the run of ``--baseline`` (a split or a mixture) and ``--measured`` (a time).

    Raises
    ------
    RequestError
        No or several splits are named, a split is illegal, or the time cannot be read.
    """
    if len(named) != 1:
        raise RequestError(
            f"the baseline of an operator graph is one split, like data16, but got {len(named) or 'none'}; files of "
            "frameworks describe transformers"
        )
    split = OPERATOR_GRAPHS.parse(setting.context, named[0])
    if broken := OPERATOR_GRAPHS.broken(setting.context, split):
        raise RequestError(f"the baseline {split} cannot train {setting.context.model.name}: {'; '.join(broken)}")
    steps = None if measured is None else seconds_of(measured)
    if measured is not None and steps is None:
        raise RequestError(
            f"--measured takes the seconds of a step of an operator graph, like 210ms, but got {measured}"
        )
    return Present(
        source=named[0],
        strategy=split,
        named=tuple(named),
        measured_as=measured,
        steps=steps,
        measured_from=measured,
    )


def stand_split_beside(
    board: Leaderboard, setting: Setting[GraphContext], present: Present, *, score: Scorer = simulator_score
) -> Leaderboard:
    """Return a board with the user's run compared with its best row; ``score``: scorer of its rows."""
    context, price, split = setting.context, setting.usd_per_gpu_hour, present.strategy
    (row,) = rows_of(context, [split], usd_per_gpu_hour=price, score=score)
    best: Any = board.rows[0]
    measured, remarks = measured_step(present, row, best, row.step_time_s)
    changes = split_changes(context, split, usd_per_gpu_hour=price, score=simulator_score)
    helping = tuple(change for change in changes if change.row.fits and change.added_s < 0)[:HELPING]
    baseline = Baseline(
        source=present.source,
        format=None,
        framework=context.profile.name,
        row=row,
        faster_rows=sum(other.throughput_per_gpu > row.throughput_per_gpu for other in board.rows),
        text=comparison_text(row, best, measured),
        changes=helping,
        notes=remarks,
        other={},
        unknown={},
        measured=measured,
    )
    return board.with_baseline(baseline, present.named, present.measured_as)


def split_changes(
    context: GraphContext,
    split: AnySplit,
    *,
    usd_per_gpu_hour: float | None = None,
    score: Scorer = simulator_score,
) -> tuple[ScoredChange, ...]:
    """Return the changes of one property, fastest first; a mixture has none."""
    if not isinstance(split, Split):
        return ()
    steps = list(_neighbours(context, split))
    row, *others = rows_of(
        context, [split, *(other for _, other in steps)], usd_per_gpu_hour=usd_per_gpu_hour, score=score
    )
    changes = [
        ScoredChange(axis=axis, words=f"{split} -> {other}", row=changed, added_s=changed.step_time_s - row.step_time_s)
        for (axis, other), changed in zip(steps, others, strict=True)
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
