"""Plans of unequal stages that are faster than the rows of a search, as trees for ``simulate --tree``."""

import dataclasses
from collections.abc import Sequence

from forerun.search.board.found import FoundTrees
from forerun.search.board.requested import TreeRow
from forerun.search.board.rows import NO_LAUNCH_MARK, Row
from forerun.search.explore.planned.plan import Plan, plan_tree
from forerun.search.explore.planned.planning import plans_of
from forerun.search.explore.trees.descents import LEAST, check_objective
from forerun.search.explore.trees.named_trees import row_of_tree
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.scorer import OnProgress
from forerun.search.request.setting import Setting
from forerun.simulator.events.trees import simulate_tree
from forerun.spaces.errors import RequestError
from forerun.spaces.trees import TreeError, flat_of, legal_tree, model_layers, resolve_tree, tree_yaml

KEPT = 12
"""Number of simulated plans, best by closed form, which differs from the event level by a few per cent."""
SHOWN = 3
"""Most plans shown."""


def search_plans(setting: Setting, rows: Sequence[Row], on_progress: OnProgress | None = None) -> FoundTrees | None:
    """Return the best plans that are faster than the first of some simulated rows; None without rows.

    Raises:
        RequestError: plans cannot be ranked by the objective.
        EndedEarly: interrupted, with the plans so far.
    """
    check_objective(setting.objective)
    if not rows:
        return None
    gpus = rows[0].gpus
    space = setting.space()
    depths = space.choices["pp"] if "pp" in setting.request.overrides else ()
    best = min((row for row in rows if row.gpus == gpus and row.fits), key=lambda row: row.step_time_s)
    better, done, planned = list[TreeRow](), 0, "unlike stages: "
    try:
        plans, pipelines = plans_of(space, gpus, KEPT, on_progress, depths=depths)
        planned += f"{pipelines:,} pipelines planned exactly on {gpus} GPUs, "
        for done, plan in enumerate(plans):
            if on_progress is not None:
                on_progress("simulating plans", done, len(plans), "")
            row = _row(setting, plan, str(best.strategy), best.step_time_s)
            if row is not None and (row.gain or 0.0) >= LEAST:
                better.append(row)
        return _found(better, len(plans), planned)
    except KeyboardInterrupt as stop:
        raise EndedEarly(_found(better, done, f"{planned}interrupted, "), stop) from None


def _found(rows: Sequence[TreeRow], simulated: int, planned: str) -> FoundTrees:
    """Return the best simulated plans."""
    best = sorted(rows, key=lambda row: row.row.step_time_s)[:SHOWN]
    remark = f"{planned}{simulated} plans simulated; " + (
        f"the best is {best[0].gain:.1%} faster than #1" if best else "none is faster than #1"
    )
    return FoundTrees(rows=tuple(best), starts=0, judged=simulated, simulated=simulated, remarks=(remark,))


def _row(setting: Setting, plan: Plan, start: str, start_s: float) -> TreeRow | None:
    """Return the simulated row of a plan, compared with the flat ``start``; None if it does not fit, breaks a law, or
    is flat.
    """
    root = plan_tree(setting.context, plan)
    try:
        strategies = legal_tree(setting.context, resolve_tree(root, model_layers(setting.context.model)))
        if flat_of(setting.context, strategies) is not None:
            return None
        scores = simulate_tree(setting.context, strategies).scores
    except (TreeError, RequestError):
        return None
    if not scores.fits[0]:
        return None
    row = row_of_tree(setting, strategies, plan.name, scores)
    mark = f"{NO_LAUNCH_MARK}: stages of unlike degrees"
    return TreeRow(
        row=dataclasses.replace(row, marks=(*row.marks, mark)),
        start=start,
        start_s=start_s,
        changes=plan.words,
        yaml="\n".join((f"# {setting.context.model.name}", *(f"# {line}" for line in plan.words), tree_yaml(root))),
    )
