"""Switches of the software in a strategy: a search turns them on where they pay.

All of them train the same model. Switches that cost memory are a choice of every candidate for which they have an
effect and whose framework supports them (``CHOSEN``, axis ``switches``). The others never slow a step, so the degrees
decide whether they are on. All further switches keep the request's setting.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np

from forerun.spaces.frameworks.hardware import DeviceKind, device_kinds
from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.frameworks.switches import all_switches, available, with_settings
from forerun.spaces.models.model import MixtureOfExperts, Model
from forerun.spaces.strategies.axes import CHOSEN, SOFTWARE, Recompute, Software
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.degree_laws import microbatches
from forerun.spaces.strategies.strategy import Strategy
from forerun.spaces.strategies.table import Columns, IntArray, Mask

READ_BY_SOFTWARE = ("tp", "ep", "etp", "pp", "vpp", "sp", "recompute", "dp", "mbs")
"""Columns that determine which switches have an effect."""


def names_of(software: int) -> list[str]:
    """Return the spellings of some switches.

    >>> names_of(3)
    ['tp-comm-overlap', 'moe-overlap']
    """
    return [words for words, flag in SOFTWARE.items() if flag & software]


def those_on(settings: Mapping[str, str]) -> Software:
    """Return the strategy switches that some settings turn on.

    >>> those_on({"tp-comm-overlap": "on", "dispatcher": "alltoall"})
    <Software.TP_COMM_OVERLAP: 1>
    """
    on = Software.NONE
    for words, flag in SOFTWARE.items():
        name, setting = _setting(words)
        on |= flag if settings.get(name) == setting else Software.NONE
    return on


def for_experts(words: str) -> bool:
    """Check whether a switch is about mixtures of experts."""
    return "moe" in all_switches()[_setting(words)[0]].needs


def unsuited(settings: Mapping[str, str], model: Model) -> list[str]:
    """Return the settings of switches that a model cannot have, with reasons."""
    mixtures = [isinstance(layer.mlp, MixtureOfExperts) for layer in model.layers]
    has = {"dense": not any(mixtures), "some dense": not all(mixtures), "experts": any(mixtures)}
    lacking = {"dense": "a model without experts", "some dense": "layers without experts", "experts": "experts"}
    verb = {"dense": "is", "some dense": "has", "experts": "has"}
    messages = []
    for name, setting in settings.items():
        wanted = all_switches()[name].models.get(setting) if name in all_switches() else None
        if wanted is not None and not has[wanted]:
            messages.append(f"{name}={setting} needs {lacking[wanted]}, which {model.name} {verb[wanted]} not")
    return messages


def can_turn_on(profile: FrameworkProfile, but: Collection[str] = (), *, on: Collection[DeviceKind] = ()) -> Software:
    """Return the switches that a framework can turn on: those that are off and have a spelling.

    Switches named by ``but``, and switches that one of the machines ``on`` does not have, are excluded.

    >>> from forerun.spaces.frameworks import load_framework
    >>> names_of(can_turn_on(load_framework("megatron-lm"), but=["moe-overlap"]))
    ['tp-comm-overlap']
    """
    switches, had = Software.NONE, available(profile)
    for words, flag in SOFTWARE.items():
        name, setting = _setting(words)
        switch = all_switches()[name]
        support = switch.support(profile)
        if support is None or name in but or had.get(name) not in _WORSE.get(words, ("off",)):
            continue
        if not all(switch.hardware_of(profile, setting).runs_on(machine) for machine in on):
            continue
        needed = switch.required(setting)
        met = all(had.get(other, settings[0]) in settings for other, settings in needed.items())
        if setting in support.flags and met and not _excluded(name, setting, had):
            switches |= flag
    return switches


def _excluded(name: str, setting: str, had: Mapping[str, str]) -> bool:
    """Check whether another switch, in its current setting, excludes this one."""
    wanted = [all_switches()[other].required(its).get(name) for other, its in had.items()]
    return any(settings is not None and setting not in settings for settings in wanted)


def _setting(words: str) -> tuple[str, str]:
    name, _, setting = words.partition("=")
    return name, setting or "on"


_WORSE: Mapping[str, tuple[str, ...]] = {"dispatcher=deepep": ("allgather", "alltoall")}
"""Settings other than "off" that are never faster than the setting to which a switch is turned."""


def running(context: Context, software: int) -> Context:
    """Return a context whose framework runs with the switches of a strategy turned on."""
    if not software:
        return context
    return replace(context, framework=_profile(context.framework, Software(software)))


@cache
def _profile(profile: FrameworkProfile, software: Software) -> FrameworkProfile:
    return with_settings(profile, dict(map(_setting, names_of(software))))


def settings_of(software: int) -> dict[str, str]:
    """Return the settings of the switches that a strategy turns on, by name.

    >>> settings_of(Software.TP_COMM_OVERLAP)
    {'tp-comm-overlap': 'on'}
    """
    return dict(map(_setting, names_of(software)))


def does_something(columns: Columns, context: Context, among: int = ~0) -> IntArray:
    """Return the switches of ``among`` with an effect on every candidate that its framework supports with it, [N]."""
    effective: IntArray = np.zeros(len(columns["tp"]), dtype=np.int64)
    for flag, conditions in _CONDITIONS.items():
        if flag & among and not _unmet(flag, context):
            met = np.logical_and.reduce([one.met(columns, context) for one in conditions])
            effective |= np.where(met, int(flag), 0)
    return effective


def _unmet(flag: Software, context: Context) -> list[str]:
    """Return the requirements of a switch that devices of the cluster do not meet, as texts."""
    name, setting = _setting(names_of(flag)[0])
    hardware = all_switches()[name].hardware_of(context.framework, setting)
    return [text for machine in device_kinds(context.cluster) if (text := hardware.unmet(machine))]


def turned_on(columns: Columns, context: Context) -> IntArray:
    """Return the switches that a search turns on for every candidate, without its choices, [N]."""
    return does_something(columns, context, int(context.free_software & ~CHOSEN))


def choices_of_software(context: Context) -> IntArray:
    """Return all sets of switches that candidates of a search may have on, in ascending order."""
    free = int(context.free_software)
    return np.array([subset for subset in range(free + 1) if subset & ~free == 0], dtype=np.int64)


def free_choices(context: Context) -> tuple[int, ...]:
    """Return the choices of ``switches`` in a search: free switches with an effect on the model."""
    names = [name for name, flag in SOFTWARE.items() if flag & CHOSEN & context.free_software]
    free = int(sum(SOFTWARE[name] for name in names if context.moe or not for_experts(name)))
    return tuple(subset for subset in range(free + 1) if subset & ~free == 0)


def settled(context: Context, strategy: Strategy) -> Strategy:
    """Return a strategy with the switches that a search turns on, and its chosen ones.

    Only switches that every half and stage supports are on.
    """
    return with_switches(strategy, switches_of(context, settled_by(strategy)))


SettledBy = tuple[int, ...]
"""Values that determine the switches which a search turns on for a strategy. The values are the numbers of
``READ_BY_SOFTWARE``, the tp of its second half, its choice of ``switches``, and the recompute of its stages."""


def settled_by(strategy: Strategy) -> SettledBy:
    """Return the values that determine the switches of a strategy."""
    s, entries = strategy, strategy.stage_recompute
    kinds = (s.recompute,) if entries is None else sorted({entry.kind for entry in entries})
    read = (s.tp, s.ep, s.etp, s.pp, s.vpp, s.sp, s.recompute, s.dp, s.mbs)
    return (*read, s.second_tp or s.tp, int(s.switches), *kinds)


def switches_of(context: Context, by: SettledBy) -> Software | None:
    """Return the switches that a search turns on for all strategies with these values.

    Return None where a search turns none on and does not change a strategy.
    """
    if not context.free_software:
        return None
    tp, *_, second_tp, chosen = by[: len(READ_BY_SOFTWARE) + 2]
    ways = list(product({tp, second_tp}, by[len(READ_BY_SOFTWARE) + 2 :]))
    values = zip(READ_BY_SOFTWARE, by, strict=False)
    # Both halves have equal numbers of microbatches: the first represents both.
    columns = {name: np.full(len(ways), int(value), dtype=np.int64) for name, value in values}
    columns |= {"tp": np.array([tp for tp, _ in ways]), "recompute": np.array([int(kind) for _, kind in ways])}
    free = int(context.free_software & ~CHOSEN) | chosen
    return Software(int(np.bitwise_and.reduce(does_something(columns, context, free))))


def with_switches(strategy: Strategy, software: Software | None) -> Strategy:
    """Return a strategy with exactly these switches turned on; unchanged for None."""
    return strategy if software is None or software == strategy.software else replace(strategy, software=software)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Condition under which a switch has an effect and its framework supports it."""

    met: Callable[[Columns, Context], Mask]
    """Function for the mask [N] of candidates that satisfy it."""
    requirement: str
    """Description of the condition."""


def without_degrees(columns: Columns, context: Context) -> Mask:
    """Mark the candidates with a chosen switch that has no effect, or that the framework lacks or already has on."""
    chosen = columns["switches"]
    lacks = (chosen & ~int(can_turn_on(context.framework, on=device_kinds(context.cluster)))) != 0
    for flag in _flags(CHOSEN):
        lacks |= ((chosen & flag) != 0) & ~_CONDITIONS[flag][0].met(columns, context)
    return np.asarray(lacks)


def without_passes(columns: Columns, context: Context) -> Mask:
    """Mark the candidates with a chosen switch that is incompatible with their recompute."""
    chosen = columns["switches"]
    lacks = np.zeros(len(chosen), dtype=bool)
    for flag in _flags(CHOSEN):
        for condition in _CONDITIONS[flag][1:]:
            lacks |= ((chosen & flag) != 0) & ~condition.met(columns, context)
    return np.asarray(lacks)


def not_running(columns: Columns, context: Context) -> Mask:
    """Mark the candidates with another switch on that has no effect, or that the framework lacks or already has on."""
    software = columns["software"] & ~int(CHOSEN)
    if not software.any():
        return np.zeros(len(software), dtype=bool)
    can = does_something(columns, context, int(~CHOSEN)) & int(can_turn_on(context.framework))
    return np.asarray((software & ~can) != 0)


def why_not(axis: str, which: slice = slice(None)) -> Callable[[Mapping[str, int], Context], str]:
    """Return a function that explains incompatible switches of one column; ``which``: their conditions."""

    def why(values: Mapping[str, int], context: Context) -> str:
        columns = {name: np.array([value], dtype=np.int64) for name, value in values.items()}
        on = values[axis] if axis == "switches" else values[axis] & ~int(CHOSEN)
        can = can_turn_on(context.framework)
        reasons = []
        for words, flag in SOFTWARE.items():
            if on & flag and (unmet := _unmet(flag, context)):
                reasons += [f"{words} {text}" for text in unmet]
            elif on & flag and not can & flag:
                reasons.append(f"{context.framework.name} cannot turn {words} on, or has it on")
            elif on & flag:
                lacks = [one.requirement for one in _CONDITIONS[flag][which] if not one.met(columns, context)[0]]
                reasons += [f"{words} needs {', '.join(lacks)}"] if lacks else []
        return f"with={'+'.join(names_of(on))}: {'; '.join(reasons)}; drop it"

    return why


def _flags(software: Software) -> list[Software]:
    """Return the single switches of a combination."""
    return [flag for flag in SOFTWARE.values() if flag & software]


def _tensor(c: Columns, x: Context) -> Mask:
    """Mark tp within one scale-up domain, the reach of user buffers and symmetric memory."""
    return np.asarray((c["tp"] > 1) & (c["sp"] == 1) & (c["tp"] <= x.cluster.scale_up_size))


def _combined(c: Columns, x: Context) -> Mask:
    """Mark candidates for which Megatron-core has the combined 1F1B schedule."""
    # The schedule needs virtual stages in a pipeline, a pipeline if the model has a prediction block, and no graph of
    # the entire step (TransformerConfig.__post_init__). With no more microbatches than stages all forward passes run
    # before the first backward pass, and no two are combined. The schedule divides a layer between its mixer and its
    # experts, which hybrid models do not allow.
    alone = (c["pp"] == 1) & (not x.model.mtp_layers)
    return np.asarray(
        (c["ep"] > 1)
        & (alone | (c["vpp"] > 1))
        & (microbatches(c, x) > c["pp"])
        & (x.moe and not x.model.hybrid and x.framework.graphs != "step")
    )


def _once(c: Columns, x: Context) -> Mask:
    """Mark recompute that leaves passes to combine: neither full, nor of entire mixtures (Megatron-core)."""
    return np.asarray((c["recompute"] != Recompute.FULL) & ((c["recompute"] & Recompute.MOE) == 0))


def _once_per_node(c: Columns, x: Context) -> Mask:
    """Mark experts on several scale-up domains: DeepEP sends a token once to each, without a gain within one."""
    return np.asarray((c["ep"] * c["etp"] > x.cluster.scale_up_size) & (c["ep"] > 1) & x.moe)


_CONDITIONS: Mapping[Software, Sequence[Condition]] = {
    Software.TP_COMM_OVERLAP: (Condition(met=_tensor, requirement="sp, and a tp within one scale-up domain"),),
    Software.MOE_OVERLAP: (
        Condition(
            met=_combined,
            requirement="ep > 1, vpp > 1 where pp > 1 (or multi-token prediction), more microbatches than stages, no "
            "hybrid model",
        ),
        Condition(met=_once, requirement="neither full recompute nor that of whole mixtures"),
    ),
    Software.DEEPEP: (Condition(met=_once_per_node, requirement="experts on several scale-up domains"),),
}
"""Conditions of every switch, on degrees and on recompute."""
