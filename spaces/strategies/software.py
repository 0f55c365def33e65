"""Switches of the software that belong to a strategy: a search turns them on where they pay.

All train the same model as well and none slows a step, so that whether one is on follows from the degrees: where it
does something, and the framework runs it. Others stay as the request has them.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np

from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.frameworks.switches import all_switches, available, with_settings
from forerun.spaces.strategies.axes import SOFTWARE, Recompute, Software
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.strategy import Strategy
from forerun.spaces.strategies.table import Columns, IntArray, Mask

_NVIDIA_FROM = ("Hopper", "Blackwell")
_BEFORE_AMPERE = ("Pascal", "Volta", "Turing")
_NVLINK = ("nvswitch", "nvlink-mesh")


READ_BY_SOFTWARE = ("tp", "ep", "etp", "pp", "vpp", "sp", "recompute")
"""Columns that say which switches do anything."""


def names_of(software: int) -> list[str]:
    """Return some switches as they are written.

    >>> names_of(3)
    ['tp-comm-overlap', 'moe-overlap']
    """
    return [words for words, flag in SOFTWARE.items() if flag & software]


def those_on(settings: Mapping[str, str]) -> Software:
    """Return the switches of strategies that some settings have on.

    >>> those_on({"tp-comm-overlap": "on", "dispatcher": "alltoall"})
    <Software.TP_COMM_OVERLAP: 1>
    """
    on = Software.NONE
    for words, flag in SOFTWARE.items():
        name, setting = _setting(words)
        on |= flag if settings.get(name) == setting else Software.NONE
    return on


def for_experts(words: str) -> bool:
    """Whether a switch is about mixtures of experts."""
    return "moe" in all_switches()[_setting(words)[0]].needs


def can_turn_on(profile: FrameworkProfile, but: Collection[str] = ()) -> Software:
    """Return the switches that a framework has off and has words for, without those named.

    >>> from forerun.spaces.frameworks import load_framework
    >>> names_of(can_turn_on(load_framework("megatron-lm"), but=["moe-overlap"]))
    ['tp-comm-overlap']
    """
    found, had = Software.NONE, available(profile)
    for words, flag in SOFTWARE.items():
        name, setting = _setting(words)
        switch = all_switches()[name]
        support = switch.support(profile)
        if support is None or name in but or had.get(name) not in _WORSE.get(words, ("off",)):
            continue
        needed = switch.required(setting)
        met = all(had.get(other, settings[0]) in settings for other, settings in needed.items())
        if setting in support.flags and met and not _excluded(name, setting, had):
            found |= flag
    return found


def _excluded(name: str, setting: str, had: Mapping[str, str]) -> bool:
    """Whether another switch, as it is set, needs this one otherwise."""
    wanted = [all_switches()[other].required(its).get(name) for other, its in had.items()]
    return any(settings is not None and setting not in settings for settings in wanted)


def _setting(words: str) -> tuple[str, str]:
    name, _, setting = words.partition("=")
    return name, setting or "on"


_WORSE: Mapping[str, tuple[str, ...]] = {"dispatcher=deepep": ("allgather", "alltoall")}
"""Settings that are never faster than what a switch is turned to, where that is not "off"."""


def running(context: Context, software: int) -> Context:
    """Return a context whose framework runs with the switches of a strategy turned on."""
    if not software:
        return context
    return replace(context, framework=_profile(context.framework, Software(software)))


@cache
def _profile(profile: FrameworkProfile, software: Software) -> FrameworkProfile:
    return with_settings(profile, dict(map(_setting, names_of(software))))


def settings_of(software: int) -> dict[str, str]:
    """Return the settings that the switches of a strategy are turned to, by name.

    >>> settings_of(Software.TP_COMM_OVERLAP)
    {'tp-comm-overlap': 'on'}
    """
    return dict(map(_setting, names_of(software)))


def does_something(columns: Columns, context: Context) -> IntArray:
    """Return for every candidate the switches that change anything for it and that its framework runs with it, [N]."""
    found: IntArray = np.zeros(len(columns["tp"]), dtype=np.int64)
    for flag, useful in _USEFUL.items():
        found |= np.where(useful(columns, context), int(flag), 0)
    return found


def turned_on(columns: Columns, context: Context) -> IntArray:
    """Return the switches that a search turns on for every candidate, [N]."""
    if not context.free_software:
        return np.zeros(len(columns["tp"]), dtype=np.int64)
    return does_something(columns, context) & int(context.free_software)


def choices_of_software(context: Context) -> IntArray:
    """Return all sets of switches that a search may turn on, in growing order."""
    free = int(context.free_software)
    return np.array([subset for subset in range(free + 1) if subset & ~free == 0], dtype=np.int64)


def settled(context: Context, strategy: Strategy) -> Strategy:
    """Return a strategy with the switches that a search turns on: those that every half and stage can run with."""
    return with_switches(strategy, switches_of(context, settled_by(strategy)))


SettledBy = tuple[int, ...]
"""All that decides which switches a search turns on for a strategy: numbers of ``READ_BY_SOFTWARE``, then the tp of its
second half, then what its stages recompute."""


def settled_by(strategy: Strategy) -> SettledBy:
    """Return what decides the switches of a strategy."""
    s, entries = strategy, strategy.stage_recompute
    kinds = (s.recompute,) if entries is None else sorted({entry.kind for entry in entries})
    return (s.tp, s.ep, s.etp, s.pp, s.vpp, s.sp, s.recompute, s.second_tp or s.tp, *kinds)


def switches_of(context: Context, by: SettledBy) -> Software | None:
    """Return the switches that a search turns on for strategies which agree in what decides them; None where it turns
    none on and leaves a strategy as it is."""
    if not context.free_software:
        return None
    tp, *_, second_tp = by[: len(READ_BY_SOFTWARE) + 1]
    ways = list(product({tp, second_tp}, by[len(READ_BY_SOFTWARE) + 1 :]))
    values = zip(READ_BY_SOFTWARE, by, strict=False)
    columns = {name: np.full(len(ways), int(value), dtype=np.int64) for name, value in values}
    columns |= {"tp": np.array([tp for tp, _ in ways]), "recompute": np.array([int(kind) for _, kind in ways])}
    return Software(int(np.bitwise_and.reduce(turned_on(columns, context))))


def with_switches(strategy: Strategy, software: Software | None) -> Strategy:
    """Return a strategy with some switches turned on and no others; as it is for None."""
    return strategy if software is None or software == strategy.software else replace(strategy, software=software)


def not_running(columns: Columns, context: Context) -> Mask:
    """Return the candidates with a switch on that does nothing for them, or that the framework has not or has on."""
    software = columns["software"]
    if not software.any():
        return np.zeros(len(software), dtype=bool)
    can = does_something(columns, context) & int(can_turn_on(context.framework))
    return np.asarray((software & ~can) != 0)


def why_not_running(values: Mapping[str, int], context: Context) -> str:
    """Return in words which switches of a strategy do not go with it."""
    columns = {axis: np.array([value], dtype=np.int64) for axis, value in values.items()}
    can = can_turn_on(context.framework)
    told = []
    for words, flag in SOFTWARE.items():
        if not values["software"] & flag:
            continue
        if not can & flag:
            told.append(f"{context.framework.name} cannot turn {words} on, or has it on")
        elif not _USEFUL[flag](columns, context)[0]:
            told.append(f"{words} needs {_NEEDS[flag]}")
    return f"with={'+'.join(names_of(values['software']))}: {'; '.join(told)}; drop it"


def _tensor(c: Columns, x: Context) -> Mask:
    """User buffers and symmetric memory reach devices of one scale-up domain of NVLink (Transformer Engine, which needs
    Ampere, and torch)."""
    levels = x.cluster.levels
    linked = bool(levels) and levels[0].kind in _NVLINK and not x.cluster.device.architecture.startswith(_BEFORE_AMPERE)
    return np.asarray((c["tp"] > 1) & (c["sp"] == 1) & (c["tp"] <= x.cluster.scale_up_size) & linked)


def _combined(c: Columns, x: Context) -> Mask:
    """The combined 1F1B schedule needs virtual stages in a pipeline, a pipeline where the model has a prediction block,
    no recomputed layer or mixture, and no graph of the whole step (Megatron-core, TransformerConfig.__post_init__)."""
    whole = (c["recompute"] == Recompute.FULL) | ((c["recompute"] & Recompute.MOE) != 0)
    alone = (c["pp"] == 1) & (not x.model.mtp_layers)
    return np.asarray(
        (c["ep"] * c["etp"] > 1)
        & (c["ep"] > 1)
        & (alone | (c["vpp"] > 1))
        & ~whole
        & (x.moe and x.framework.graphs != "step")
    )


def _once_per_node(c: Columns, x: Context) -> Mask:
    """DeepEP is written for NVIDIA's devices from Hopper on."""
    device = x.cluster.device.architecture.startswith(_NVIDIA_FROM)
    return np.asarray((c["ep"] * c["etp"] > x.cluster.scale_up_size) & (c["ep"] > 1) & x.moe & device)


_USEFUL: Mapping[Software, Callable[[Columns, Context], Mask]] = {
    Software.TP_COMM_OVERLAP: _tensor,
    Software.MOE_OVERLAP: _combined,
    Software.DEEPEP: _once_per_node,
}
_NEEDS: Mapping[Software, str] = {
    Software.TP_COMM_OVERLAP: "sp, and a tp within one scale-up domain of NVLink, Ampere or later",
    Software.MOE_OVERLAP: (
        "ep > 1, vpp > 1 where pp > 1 (or multi-token prediction), neither full recompute nor that of whole mixtures"
    ),
    Software.DEEPEP: "experts on several scale-up domains of NVIDIA devices from Hopper on",
}
