"""Switches of the software that would speed the first row up and cost nothing in quality."""

import dataclasses

from forerun.search.board.rows import Row
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.spaces.frameworks import all_switches
from forerun.spaces.frameworks.switch_words import flag_words
from forerun.spaces.frameworks.switches import SHARE, with_settings
from forerun.spaces.strategies import table_of
from forerun.spaces.strategies.software import names_of, unsuited

WORTH = 0.03
"""Gain from which a switch is named."""
MOST = 3
"""Switches that are named at most."""


def switches_note(setting: Setting, first: Row, score: Scorer) -> tuple[str, ...]:
    """Return as one note which switches would help the first row most, each by itself.

    None where the user chose it, the search turns it on where the framework runs it, the framework has no flag for it,
    the row would not fit, or little is gained.
    """
    context, found = setting.context, []
    searched = {words.partition("=")[0] for words in names_of(setting.free_software)}
    for name, present in context.framework.switches:
        switch = all_switches()[name]
        support = switch.support(context.framework)
        if not switch.free or support is None or name in searched or name in setting.request.switches:
            continue
        for other, flags in support.flags.items():
            if other in (present, SHARE) or not (context.moe or "moe" not in switch.needs):
                continue
            if unsuited({name: other}, context.model):
                continue
            changed = dataclasses.replace(context, framework=with_settings(context.framework, {name: other}))
            scores = score(changed, table_of([first.strategy]))
            gain = first.step_time_s / float(scores.step_time_s[0]) - 1
            if gain >= WORTH and bool(scores.fits[0]):
                found.append((gain, name, other, " ".join(flag_words(flags))))
    if not found:
        return ()
    best: dict[str, tuple[float, str]] = {}
    for gain, name, other, words in sorted(found, reverse=True):
        best.setdefault(name, (gain, f"{name}{'' if other == 'on' else f'={other}'} {gain:+.1%} ({words})"))
    told = "; ".join(text for _, text in sorted(best.values(), reverse=True)[:MOST])
    return (f"switches that speed up row 1, one at a time (--with adds one to the search): {told}",)
