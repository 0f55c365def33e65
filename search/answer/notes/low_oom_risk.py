"""Note on the fastest strategy with a small OOM risk, if the best row has a large one."""

import dataclasses
import math
from collections.abc import Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.leaderboard import row_to_launch
from forerun.search.board.rows import Row
from forerun.search.formats.launchable import launchable
from forerun.search.order.objectives import objective_named
from forerun.search.request.setting import Setting
from forerun.simulator.memory.risk import RISKY, risking
from forerun.spaces.units import TIMES

SAFEST = "safest:"
"""First words of the note."""
SAME = 0.0005
"""Negligible relative difference of GPU times."""


def safer_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the best strategy with a small risk, and its GPU time.

    It has at most half the risk of the row to launch, and a launch file. There is no note if that row has a small risk
    itself, or the user set a limit. If no row is safe and a safe candidate may be unscored, the space is searched
    again.
    """
    launched = row_to_launch(rows)
    if launched.oom_risk <= RISKY or setting.request.oom_risk is not None:
        return ()
    if objective_named(setting.objective).front:
        return ()
    limit = min(RISKY, max(0.01, math.floor(100 * launched.oom_risk / 2) / 100))
    safest = search.alternatives.safest
    if safest is not None and (safest.oom_risk > limit or not launchable(setting.context, safest.strategy)):
        safest = None
    safer = next((row for row in rows if row.oom_risk <= limit and not row.lacks_launch_file), None)
    # Each row represents an idea: a safe variant of a higher row may be better.
    if safest is not None and (safer is None or _faster(setting, safest, safer)):
        safer = safest
    if (safer is None or safer is safest) and search.alternatives.unscored and not setting.context.cluster.groups:
        best = _best_safe(setting, limit, search)
        safer = best if best is not None and launchable(setting.context, best.strategy) else safer
    if safer is None:
        return ()
    times = _device_s(safer) / _device_s(launched)
    than = f"row {launched.rank or 1}"
    more = f"{abs(times - 1):.1%} {'more' if times >= 1 else 'less'} GPU time than {than}"
    if abs(times - 1) < SAME:
        more = f"as much GPU time as {than}"
    return (
        f"{SAFEST} {safer.name} on {safer.gpus} GPUs, {safer.oom_risk:.0%} OOM risk ({safer.peak_memory_gib:.1f} GiB), "
        f"{more if times < TIMES else f'{times:.1f} times the GPU time of {than}'} "
        f"(--oom-risk {limit:.0%} ranks such rows only)",
    )


def _device_s(row: Row) -> float:
    return row.gpus * row.step_time_s


def _faster(setting: Setting, one: Row, other: Row) -> bool:
    """Compare two rows by an objective of time: the first takes less device time."""
    return setting.objective in ("throughput", "cost") and _device_s(one) < _device_s(other)


def _best_safe(setting: Setting, limit: float, search: NoteSearch) -> Row | None:
    """Return the best row of the setting's space with a risk of at most ``limit``."""
    safe = dataclasses.replace(setting, context=risking(setting.context, limit))
    return search.best(safe, limits=setting.limits)
