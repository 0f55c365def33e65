"""Note on software switches that would speed up the first row without loss of quality."""

from collections.abc import Iterator, Mapping, Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.other_software import with_switches
from forerun.search.board.rows import Row
from forerun.search.request.setting import Setting
from forerun.spaces.frameworks import all_switches
from forerun.spaces.frameworks.switch_words import flag_words
from forerun.spaces.frameworks.switches import SHARE
from forerun.spaces.strategies import Context, table_of
from forerun.spaces.strategies.software import names_of, unsuited

SWITCHED = "switches that speed up row 1, one at a time (--with adds one to the search):"
"""First words of the note."""
WORTH = 0.03
"""Least gain of a named switch."""
MOST = 3
"""Most switches named."""


def switches_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the most helpful switches for the first row, each alone.

    A switch is omitted if the user chose it, a search turns it on, the framework has no flag for it, the row would not
    fit, or the gain is small.
    """
    context, first = setting.context, rows[0]
    searched = {setting_text.partition("=")[0] for setting_text in names_of(setting.free_software)}
    table = table_of([first.strategy])
    gains = []
    for name, other in _free_settings(context):
        if name in searched or name in setting.request.switches or unsuited({name: other}, context.model):
            continue
        changed = with_switches(setting, {name: other})
        if changed is None:
            continue
        scores = search.score(changed.context, table)
        if bool(scores.fits[0]):
            flags = " ".join(_flags(changed.context, dict(context.framework.switches)))
            gains.append((float(scores.step_time_s[0]), name, other, flags))
    if not gains:
        return ()
    before_s = first.step_time_s
    if context.cluster.groups:  # their rows are simulated event by event
        before_s = float(search.score(context, table).step_time_s[0])
    best: dict[str, tuple[float, str]] = {}
    for step_s, name, other, flags in sorted(gains):
        if (gain := before_s / step_s - 1) >= WORTH:
            best.setdefault(name, (gain, f"{name}{'' if other == 'on' else f'={other}'} {gain:+.1%} ({flags})"))
    if not best:
        return ()
    best_first = "; ".join(text for _, text in sorted(best.values(), reverse=True)[:MOST])
    return (f"{SWITCHED} {best_first}",)


def _free_settings(context: Context) -> Iterator[tuple[str, str]]:
    """Yield the unused settings of switches that keep quality and have a flag of the framework."""
    for name, present in context.framework.switches:
        switch = all_switches()[name]
        support = switch.support(context.framework)
        if switch.free and support is not None and (context.moe or "moe" not in switch.needs):
            yield from ((name, other) for other in support.flags if other not in (present, SHARE))


def _flags(context: Context, before: Mapping[str, str]) -> Iterator[str]:
    """Yield the flags of all settings changed since ``before``, since one switch may turn on another."""
    for name, setting in context.framework.switches:
        switch = all_switches()[name]
        support = switch.support(context.framework)
        if support is not None and setting != before[name] and (context.moe or "moe" not in switch.needs):
            yield from flag_words(support.written(setting) or {})
