"""Plans of unlike stages beside the rows of a board, as trees that ``simulate --tree`` reads."""

import dataclasses
from collections.abc import Sequence

from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import NO_LAUNCH_MARK
from forerun.search.board.trees import TreeRow, TreeRows
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.kinds import TRANSFORMERS, kind_of
from forerun.search.request.scorer import Told
from forerun.search.request.setting import Setting
from forerun.search.trees.beside import LEAST, check_objective, trees_beside
from forerun.search.trees.simulate import row_of_tree
from forerun.search.unequal.plan import Plan, plan_tree
from forerun.search.unequal.planning import plans_of
from forerun.simulator.events.trees import simulate_tree
from forerun.spaces.errors import RequestError
from forerun.spaces.trees import TreeError, flat_of, legal_tree, model_layers, resolve_tree, tree_yaml

KEPT = 12
"""Plans that are simulated, best by their closed form: that and the event level differ by a few per cent."""
SHOWN = 3
"""Plans that are shown at most."""


def with_plans(board: Leaderboard, setting: Setting, told: Told | None = None) -> Leaderboard:
    """Return a board, whose rows went through the event level, with the best plans that better its first row.

    Raises:
        RequestError: the model is no transformer, or plans cannot be ranked by the objective.
        EndedEarly: with the board and the plans that were simulated by then.
    """
    if kind_of(setting.context) is not TRANSFORMERS:
        raise RequestError(f"unlike stages are planned for transformers, and {setting.request.model} is none")
    check_objective(setting.objective)
    if not board.rows:
        return board
    gpus = board.rows[0].gpus
    space = setting.space()
    depths = space.choices["pp"] if "pp" in setting.request.overrides else ()
    best = min((row for row in board.rows if row.gpus == gpus and row.fits), key=lambda row: row.step_time_s)
    found, done, planned = list[TreeRow](), 0, "unlike stages: "
    try:
        plans, pipelines = plans_of(space, gpus, KEPT, told, depths=depths)
        planned += f"{pipelines:,} pipelines planned exactly on {gpus} GPUs, "
        for done, plan in enumerate(plans):
            if told is not None:
                told("simulating plans", done, len(plans), "")
            row = _row(setting, plan, str(best.strategy), best.step_time_s)
            if row is not None and (row.gain or 0.0) >= LEAST:
                found.append(row)
        return _with(board, found, len(plans), planned)
    except KeyboardInterrupt as stop:
        raise EndedEarly(_with(board, found, done, f"{planned}interrupted, "), stop) from None


def _with(board: Leaderboard, found: Sequence[TreeRow], simulated: int, planned: str) -> Leaderboard:
    """Return a board with the best of the plans that were simulated."""
    best = sorted(found, key=lambda row: row.row.step_time_s)[:SHOWN]
    remark = f"{planned}{simulated} plans simulated; " + (
        f"the best is {best[0].gain:.1%} faster than #1" if best else "none is faster than #1"
    )
    board = dataclasses.replace(board, remarks=(*board.remarks, remark))
    return trees_beside(board, TreeRows(rows=tuple(best), starts=0, judged=simulated, simulated=simulated, gain=0.0))


def _row(setting: Setting, plan: Plan, start: str, start_s: float) -> TreeRow | None:
    """Return a plan event by event beside the flat strategy ``start``; None where it does not fit there, breaks a law,
    or is flat itself."""
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
    others = (one for one in row.marks if not one.startswith(NO_LAUNCH_MARK))
    return TreeRow(
        row=dataclasses.replace(row, marks=(*others, mark)),
        start=start,
        start_s=start_s,
        changes=plan.words,
        yaml="\n".join((f"# {setting.context.model.name}", *(f"# {line}" for line in plan.words), tree_yaml(root))),
    )
