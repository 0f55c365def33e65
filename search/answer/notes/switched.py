"""Switches of the software that would speed the first row up and cost nothing in quality."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import Row
from forerun.search.request.setting import Setting
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import all_switches, switched
from forerun.spaces.frameworks.hardware import device_kinds
from forerun.spaces.frameworks.switch_words import flag_words
from forerun.spaces.frameworks.switches import SHARE, on_devices
from forerun.spaces.strategies import Context, table_of
from forerun.spaces.strategies.software import names_of, unsuited

WORTH = 0.03
"""Gain from which a switch is named."""
MOST = 3
"""Switches that are named at most."""


def switches_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return as one note which switches would help the first row most, each by itself.

    None where the user chose it, the search turns it on where the framework runs it, the framework has no flag for it,
    the row would not fit, or little is gained.
    """
    context, first, found = setting.context, rows[0], []
    here = device_kinds(context.cluster)
    searched = {words.partition("=")[0] for words in names_of(setting.free_software)}
    for name, present in context.framework.switches:
        switch = all_switches()[name]
        support = switch.support(context.framework)
        if not switch.free or support is None or name in searched or name in setting.request.switches:
            continue
        for other in support.flags:
            if other in (present, SHARE) or not (context.moe or "moe" not in switch.needs):
                continue
            if unsuited({name: other}, context.model):
                continue
            try:
                framework = switched(context.framework, {**setting.request.switches, name: other})
            except RequestError:  # it needs another setting of a switch that the user chose
                continue
            if framework != on_devices(framework, here):
                continue
            changed = dataclasses.replace(context, framework=framework)
            scores = search.score(changed, table_of([first.strategy]))
            gain = first.step_time_s / float(scores.step_time_s[0]) - 1
            if gain >= WORTH and bool(scores.fits[0]):
                found.append((gain, name, other, " ".join(_flags(changed, dict(context.framework.switches)))))
    if not found:
        return ()
    best: dict[str, tuple[float, str]] = {}
    for gain, name, other, words in sorted(found, reverse=True):
        best.setdefault(name, (gain, f"{name}{'' if other == 'on' else f'={other}'} {gain:+.1%} ({words})"))
    best_first = "; ".join(text for _, text in sorted(best.values(), reverse=True)[:MOST])
    return (f"switches that speed up row 1, one at a time (--with adds one to the search): {best_first}",)


def _flags(context: Context, before: Mapping[str, str]) -> Iterator[str]:
    """Yield the flags of the settings of a context's framework that were others ``before``: one may bring another."""
    for name, setting in context.framework.switches:
        switch = all_switches()[name]
        support = switch.support(context.framework)
        if support is not None and setting != before[name] and (context.moe or "moe" not in switch.needs):
            yield from flag_words(support.written(setting) or {})
