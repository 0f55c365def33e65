"""Note on switches that save memory, or hide gradient traffic, for a strategy faster than the first row."""

import dataclasses
from collections.abc import Iterator, Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.other_software import lean, other_frameworks, switch_words, with_switches
from forerun.search.board.rows import Row
from forerun.search.formats.launchable import marked
from forerun.search.order.objectives import objective_named
from forerun.search.order.worth import with_failed_starts
from forerun.search.request.setting import Setting
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Recompute, Schedule, Split, Strategy, StrategySpace

ROOM = "more room:"
"""First words of the note."""
SWITCHES = {
    "chunked-loss": ("on",),
    "activation-offload": ("on",),
    "optimizer-offload": ("on",),
    "grad-sync": ("round", "step"),
}
"""Settings with an unchanged training that no search turns on, since alone they cost time."""
TRAFFIC = ("grad-sync",)
"""Switches that hide gradient traffic and need memory."""
FULL, EXPOSED = 0.8, 0.1
"""Share of the memory, and of the step for replica traffic, from which memory or traffic limits the first row."""
SMALL = 1 << 20
"""Largest space searched completely instead of near the first row, in candidates."""
WORTH = 0.05
"""Least gain of a named switch."""
TOGETHER = 1.1
"""Least gain of two switches over the better one for which both are named."""


def room_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the switches that free memory for a faster strategy.

    If memory or replica traffic limits the first row, strategies near it are searched with each switch that no search
    turns on.
    """
    first, context = rows[0], setting.context
    if context.cluster.groups or objective_named(setting.objective).front or setting.gpus is None:
        return ()
    names = [name for name in SWITCHES if name not in setting.request.switches]
    if not _memory_decides(first):
        names = [name for name in names if name in TRAFFIC]
    if first.breakdown_s.get("data", 0.0) < EXPOSED * first.step_time_s:
        names = [name for name in names if name not in TRAFFIC]
    if not names or not _could_gain(setting, first, names, search):
        return ()
    settings = [{name: value} for name in names for value in SWITCHES[name]]
    gains = [gain for switches in settings for gain in _gain(setting, first, switches, search)]
    gains.sort(key=lambda gain: -gain[0])
    if len(gains) > 1:
        both = _gain(setting, first, {**gains[1][1], **gains[0][1]}, search)
        gains = [*(gain for gain in both if 1 + gain[0] >= TOGETHER * (1 + gains[0][0])), *gains]
    shown = _one_each(gains)
    texts = [_text(context, *gain) for gain in shown]
    if shown and all(switch_words(context, switches)[1] for _, switches, _ in shown):
        texts += _elsewhere(setting, first, search)
    return (f"{ROOM} {'; '.join(texts)}",) if texts else ()


def _elsewhere(setting: Setting, first: Row, search: NoteSearch) -> Iterator[str]:
    """Yield the text on the framework with the largest launchable gain over the first row."""
    others = ((flag, search.best(other, overrides=lean(other)), other) for flag, other in other_frameworks(setting))
    rows = [(flag, marked(other.context, row)) for flag, row, other in others if row is not None]
    able = [(flag, row) for flag, row in rows if not row.lacks_launch_file]
    if not able:
        return
    flag, row = min(able, key=lambda one: with_failed_starts(_device_s(one[1]), one[1].oom_risk))
    if (gain := _device_s(first) / _device_s(row) - 1) >= WORTH:
        yield _gain_text(flag, gain, row)


def _memory_decides(row: Row) -> bool:
    share = row.peak_memory_gib / row.memory_limit_gib
    return share >= FULL or row.strategy.recompute != Recompute.NONE or row.strategy.recompute_layers > 0


def _could_gain(setting: Setting, first: Row, names: Sequence[str], search: NoteSearch) -> bool:
    """Return whether a strategy near the first row would be faster with unlimited memory or hidden traffic."""
    if any(name in TRAFFIC for name in names):
        return True
    device = setting.context.cluster.device
    cluster = dataclasses.replace(
        setting.context.cluster, device=dataclasses.replace(device, memory_bytes=4 * device.memory_bytes)
    )
    row = _best_near(setting, dataclasses.replace(setting.context, cluster=cluster), first, search)
    return row is not None and _device_s(first) / _device_s(row) - 1 >= WORTH


def _gain(
    setting: Setting, first: Row, switches: dict[str, str], search: NoteSearch
) -> list[tuple[float, dict[str, str], Row]]:
    """Return the gain over the first row with some switches on, and its row; empty for a small gain."""
    changed = with_switches(setting, switches)
    if changed is None:
        return []
    try:
        row = _best_near(setting, changed.context, first, search)
    except RequestError:  # the cluster has no rate of host links
        return []
    if row is None:
        return []
    gain = _device_s(first) / _device_s(row) - 1
    return [(gain, switches, row)] if gain >= WORTH else []


def _best_near(setting: Setting, context: Context, first: Row, search: NoteSearch) -> Row | None:
    changed = dataclasses.replace(setting, context=context)
    space = changed.space()
    near = space.choices if space.size <= SMALL else dict(_near(first.strategy, space))
    device_s = _device_s(first) / (1 + WORTH)
    return search.best_in(changed, dataclasses.replace(space, choices=near), limits=setting.limits, device_s=device_s)


def _near(strategy: Strategy, space: StrategySpace) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield every axis with the choices of the space near a strategy."""
    wanted: dict[str, set[int]] = {
        "gpus": {strategy.devices},
        "tp": {1, strategy.tp // 2, strategy.tp},
        "pp": {1, strategy.pp // 2, strategy.pp, 2 * strategy.pp},
        "cp": {strategy.cp, strategy.cp // 2},
        "ep": {strategy.ep, strategy.ep // 2},
        "etp": {strategy.etp},
        "mbs": {strategy.mbs, 2 * strategy.mbs, 4 * strategy.mbs},
        "vpp": {1, strategy.vpp},
        "schedule": {int(strategy.schedule), int(Schedule.ONE_F_ONE_B)},
        "split": {int(strategy.split), int(Split.EVEN)},
        "recompute": {int(strategy.recompute), int(Recompute.NONE), int(Recompute.FULL)},
        "recompute_layers": {0, 1, strategy.recompute_layers},
        "placement": {int(strategy.placement)},
        "switches": {0, int(strategy.switches)},
    }
    for axis, choices in space.choices.items():
        kept = tuple(choice for choice in choices if choice in wanted[axis]) if axis in wanted else choices
        yield axis, kept or choices


def _one_each(gains: Sequence[tuple[float, dict[str, str], Row]]) -> list[tuple[float, dict[str, str], Row]]:
    """Keep the best setting of each set of switches, two at most."""
    best: dict[tuple[str, ...], tuple[float, dict[str, str], Row]] = {}
    for gain in gains:
        best.setdefault(tuple(sorted(gain[1])), gain)
    return list(best.values())[:2]


def _text(context: Context, gain: float, switches: dict[str, str], row: Row) -> str:
    flags, lacking = switch_words(context, switches)
    return _gain_text(flags, gain, row, lacking)


def _gain_text(flags: str, gain: float, row: Row, lacking: str = "") -> str:
    memory = "; ".join(filter(None, [f"{row.peak_memory_gib:.0f} GiB, {row.oom_risk:.0%} OOM risk", lacking]))
    return f"{flags} {gain:+.0%} throughput with {row.name} ({memory})"


def _device_s(row: Row) -> float:
    return row.gpus * row.step_time_s
