"""The fastest strategy that is unlikely to run out of memory, where the best of a search is not."""

import dataclasses
from collections.abc import Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import NO_LAUNCH_MARK, Row
from forerun.search.formats.launchable import launchable
from forerun.search.order.objectives import objective_named
from forerun.search.request.setting import Setting
from forerun.simulator.memory.risk import RISKY, risking
from forerun.spaces.units import TIMES

SAFEST = "safest:"
"""How the note begins."""
SAME = 0.0005
"""Difference of GPU times that is none."""


def safer_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return what the best strategy with a small risk costs, as one note; none where the first row is one, or where the
    user said what risk to take. Where no row is safe and a safe candidate may be unscored, the space is searched again.
    """
    if rows[0].oom_risk <= RISKY or setting.request.oom_risk is not None:
        return ()
    if objective_named(setting.objective).front:
        return ()
    safest = search.alternatives.safest
    safe = (row for row in rows if row.oom_risk <= RISKY)
    found = next((row for row in safe if not any(mark.startswith(NO_LAUNCH_MARK) for mark in row.marks)), None)
    # Rows are an idea each: of the ideas above, a safe variant may be the better one.
    if safest is not None and (found is None or _faster(setting, safest, found)):
        found = safest
    if (found is None or found is safest) and search.alternatives.unscored and not setting.context.cluster.groups:
        found = _best_safe(setting, search) or found
    if found is None:
        return ()
    times = _device_s(found) / _device_s(rows[0])
    more = f"{abs(times - 1):.1%} {'more' if times >= 1 else 'less'} GPU time than row 1"
    if abs(times - 1) < SAME:
        more = "as much GPU time as row 1"
    return (
        f"{SAFEST} {found.name} on {found.gpus} GPUs, {found.oom_risk:.0%} OOM risk ({found.peak_memory_gib:.1f} GiB), "
        f"{more if times < TIMES else f'{times:.1f} times the GPU time of row 1'} "
        f"(--oom-risk {RISKY:.0%} ranks such rows only)",
    )


def _device_s(row: Row) -> float:
    return row.gpus * row.step_time_s


def _faster(setting: Setting, one: Row, other: Row) -> bool:
    """Whether one row is better than another by an objective of time, and can be launched."""
    if setting.objective not in ("throughput", "cost") or _device_s(one) >= _device_s(other):
        return False
    return launchable(setting.context, one.strategy)


def _best_safe(setting: Setting, search: NoteSearch) -> Row | None:
    """Return the best row of the same space with a small risk."""
    safe = dataclasses.replace(setting, context=risking(setting.context, RISKY))
    return search.best(safe, limits=setting.limits)
