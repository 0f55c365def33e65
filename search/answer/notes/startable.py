"""Note on a restriction of the search that leads to a launch file, if no row has one."""

from collections.abc import Mapping, Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.divisible import narrowed
from forerun.search.board.rows import Row
from forerun.search.formats.launchable import launchable
from forerun.search.formats.registry import writers_of
from forerun.search.request.setting import Setting
from forerun.spaces.errors import RequestError

STARTABLE = "with a launch file:"
"""First words of the note."""
FREE = ("split", "switches")
"""Further free axes: switches that overlap communication may need virtual stages."""
_PLAIN: tuple[Mapping[str, Sequence[object]], ...] = (
    {"split": ["even"]},
    {"vpp": [1], "schedule": ["1f1b"]},
    {"vpp": [1], "schedule": ["1f1b"], "split": ["even"]},
)
"""Restrictions to strategies that most formats can express."""


def startable_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the fastest launchable strategy near the rows, and the flags of its search.

    There is no note if a row has a launch file, or the framework has no format.
    """
    first, chosen = rows[0], setting.request.overrides
    if setting.context.cluster.groups or not writers_of(setting.context.framework):
        return ()
    if not all(row.lacks_launch_file for row in rows):
        return ()
    starts: list[tuple[float, str, Row]] = []
    for plain in _PLAIN:
        if plain.keys() & chosen.keys():
            continue
        try:
            row = search.best(setting, overrides={**narrowed(setting, rows, FREE), **plain}, limits=setting.limits)
        except RequestError:  # the framework has no such choice
            continue
        if row is not None and launchable(setting.context, row.strategy):
            flags = " ".join(f"--set {axis}={values[0]}" for axis, values in plain.items())
            starts.append((row.gpus * row.step_time_s, flags, row))
    if not starts:
        return ()
    device_s, flags, row = min(starts, key=lambda one: one[:2])
    more = device_s / (first.gpus * first.step_time_s) - 1
    return (
        f"{STARTABLE} {flags} leads to {row.name} on {row.gpus} GPUs, {row.oom_risk:.0%} OOM risk "
        f"({row.peak_memory_gib:.1f} GiB), {more:+.1%} GPU time against row 1",
    )
