"""Switches of the software in configurations: writing and reading of the flags assumed by a prediction.

Names of switches in formats are data (``forerun.spaces.frameworks.switches``). A switch that has no effect for a
strategy (a token dispatcher without expert parallelism) is neither written nor reported.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from forerun.search.formats.contract import Launch
from forerun.search.formats.limits import is_mixture
from forerun.simulator.layer.eight_bit import EIGHT_BIT
from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import FrameworkProfile, Switch, all_switches, framework_names, load_framework
from forerun.spaces.frameworks.recipes import implied
from forerun.spaces.frameworks.switches import SHARE
from forerun.spaces.strategies import Strategy

SECTIONED = "nemo"
"""The framework with the settings of Megatron-LM, in sections of a configuration."""
_ENVIRONMENT = re.compile(
    r"\b(PYTORCH_(?:CUDA_|HIP_|NPU_)?ALLOC_CONF|NCCL_GRAPH_REGISTER|NVTE_CPU_OFFLOAD_V1)="
    r"['\"]?(?:\$\{\w+:?-)?([\w:.,\[\]-]+)"
)

_VARIABLE = re.compile(r"\b([A-Z][A-Z0-9_]{3,60})=['\"]?(?:\$\{\w+:?-)?([\w:.,\[\]-]+)")


def has_effect(
    switch: Switch,
    strategy: Strategy,
    settings: Mapping[str, str],
    *,
    mixture: bool,
    precision: str | None = None,
) -> bool:
    """Whether a switch has an effect for a strategy, with or without experts, at ``precision``.

    ``settings``: settings of all switches.
    """
    if settings.get(switch.beside) == "off":
        return False
    degrees = {"replicas": strategy.dp * strategy.cp, "moe": int(mixture), "sp": int(strategy.sp)}
    degrees |= {"eight_bit": int(precision in EIGHT_BIT), "fp8": int(precision in ("fp8", "mxfp8"))}
    degrees |= {"ep": strategy.ep * strategy.etp}
    return all(degrees.get(name, getattr(strategy, name, 0)) >= least for name, least in switch.needs.items())


def assumed(launch: Launch, framework: str) -> dict[str, str]:
    """Return the setting of every switch of a launch: the predicted one, else the profile's default."""
    profile = load_framework(framework)
    mixture, precision = is_mixture(launch.model), launch.workload.precision
    chosen = {**launch.switches, **implied(precision)}
    settings = dict(profile.switches) | {k: v for k, v in chosen.items() if k in dict(profile.switches)}
    return {
        name: setting
        for name, setting in settings.items()
        if has_effect(all_switches()[name], launch.strategy, settings, mixture=mixture, precision=precision)
    }


def carried(profile: FrameworkProfile, framework: str) -> dict[str, str]:
    """Return the settings of ``profile`` common with another framework, by switch."""
    target = load_framework(framework)
    return {
        k: v
        for k, v in profile.switches
        if k in dict(target.switches) and _words(all_switches()[k], target, v) is not None
    }


def usual(profile: FrameworkProfile) -> dict[str, str]:
    """Return the settings that the framework of a profile has by default."""
    named = next((name for name in profile.lineage if name in framework_names()), None)
    return dict(load_framework(named).switches) if named else {}


def chosen(profile: FrameworkProfile) -> dict[str, str]:
    """Return the settings of a profile that are not the defaults of its framework."""
    defaults = usual(profile)
    return {name: setting for name, setting in profile.switches if defaults.get(name) not in (None, setting)}


def refused(
    profile: FrameworkProfile, launch: Launch, framework: str | None, writes: Collection[str] | None = None
) -> dict[str, str]:
    """Return the chosen non-default settings of a prediction that affect a launch and that a format cannot express.

    ``profile``: software of the prediction. ``framework``: framework of the format. ``writes``: switches that the
    format can write (None: all of its framework).
    """
    target = None if framework is None else load_framework(framework)
    mixture, precision = is_mixture(launch.model), launch.workload.precision
    settings = dict(profile.switches)

    def written(name: str, setting: str) -> bool:
        if target is None or (writes is not None and name not in writes):
            return writes is not None and name in writes
        return _words(all_switches()[name], target, setting) is not None

    return {
        name: setting
        for name, setting in chosen(profile).items()
        if not written(name, setting)
        and has_effect(all_switches()[name], launch.strategy, settings, mixture=mixture, precision=precision)
    }


def _words(switch: Switch, profile: FrameworkProfile, setting: str) -> Mapping[str, Any] | None:
    """Return the flags with which a framework writes a setting; None if it cannot."""
    support = switch.support(profile)
    return None if support is None else support.written(setting)


def flags_of(launch: Launch, framework: str) -> dict[str, Any]:
    """Return a framework's settings for the switches assumed by a prediction.

    Raises
    ------
    RequestError
        The framework cannot express a setting; the text names the settings that it can.
    """
    profile = load_framework(framework)
    flags: dict[str, Any] = {}
    for name, setting in assumed(launch, framework).items():
        switch = all_switches()[name]
        support = switch.support(profile)
        if support is None:
            continue
        words = support.written(setting)
        if words is None:
            known = ", ".join(sorted({support.unset, *support.flags}))
            raise RequestError(
                f"{framework} has no flag for {name}={setting}; it has {known}: search with one of these"
            )
        flags |= words
    return flags


def read_switches(
    look_up: Callable[[str], Any], framework: str, strategy: Strategy, *, mixture: bool, precision: str | None = None
) -> dict[str, str]:
    """Return the switches of a configuration.

    ``look_up`` returns the value of one of its settings (None: not stated) and marks it as read.
    """
    profile = load_framework(framework)
    switches: dict[str, str] = {}
    for name, _ in profile.switches:
        switch = all_switches()[name]
        support = switch.support(profile)
        if support is None:
            continue
        spelled = [(setting, flags) for setting, flags in support.flags.items() if flags]
        spelled += [(setting, flags) for setting, others in support.also.items() for flags in others]
        stated = {key: look_up(key) for _, flags in spelled for key in flags}
        fitting = [
            (len(flags), _shared(setting, flags, stated))
            for setting, flags in spelled
            if all(_alike(stated[key], value) for key, value in flags.items())
        ]
        most = max((count for count, _ in fitting), default=0)
        setting = next((setting for count, setting in fitting if count == most), support.unset)
        if has_effect(switch, strategy, switches, mixture=mixture, precision=precision):
            switches[name] = implied(precision).get(name) or switch.read(setting)
    return switches


def _shared(setting: str, flags: Mapping[str, Any], stated: Mapping[str, Any]) -> str:
    """Return a setting as stated in a file: for shares, the number in place of the word."""
    return next((_text(stated[key]) for key, value in flags.items() if value == SHARE), setting)


def _alike(stated: Any, wanted: Any) -> bool:
    if stated is None or wanted != SHARE:
        return stated is not None and _same(_text(stated), _text(wanted))
    try:
        return 0 <= float(_text(stated)) <= 1
    except ValueError:
        return False


def _same(stated: str, wanted: str) -> bool:
    """Whether two texts are the same, or numbers that are equal (1 and 1.0)."""
    if stated == wanted:
        return True
    try:
        return float(stated) == float(wanted)
    except ValueError:
        return False


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    return str(value).strip().lower()


def environment(*texts: str) -> dict[str, str]:
    """Return the environment variables of scripts that affect switches, speed or memory.

    Variables of PyTorch's allocator have one name.
    """
    lines = [line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#")]
    telling = {name: value for line in lines for name, value in _VARIABLE.findall(line) if _changes_speed(name)}
    variables = {match[1]: match[2] for text in texts for match in _ENVIRONMENT.finditer(text)} | telling
    return {_allocator(name): value for name, value in variables.items()}


def _allocator(variable: str) -> str:
    """Return the canonical name of a variable: PyTorch's allocator variable has several spellings."""
    return "PYTORCH_CUDA_ALLOC_CONF" if "ALLOC_CONF" in variable and "NPU" not in variable else variable


def exports(flags: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return flags without environment variables, and the script lines that set these."""
    variables = {name: value for name, value in flags.items() if name.isupper()}
    lines = [f"export {name}={value}" for name, value in variables.items()]
    return {name: value for name, value in flags.items() if name not in variables}, lines


@cache
def _entries() -> Mapping[str, Any]:
    entries: Mapping[str, Any] = package_yaml("forerun.spaces.frameworks", "data", "switches", "unmodelled.yaml")
    return entries


def _changes_speed(variable: str) -> bool:
    return any(re.fullmatch(entry["match"], variable) for entry in _entries()["environment"])


@cache
def _unmodelled(framework: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    entries = (*_entries().get(framework, []), *_entries()["environment"])
    return tuple((re.compile(entry["match"]), entry["what"]) for entry in entries)


def plain_name(name: str) -> str:
    """Return the name of an argument without leading dashes, with underscores."""
    return name.removeprefix("--").replace("-", "_")


def split_known(settings: Mapping[str, Any], framework: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings with unmodelled effects on speed or memory, and the harmless ones.

    Names are compared without leading dashes, with underscores; a setting with the value assumed by every prediction is
    harmless.
    """
    usual = {key: value if isinstance(value, list) else [value] for key, value in _entries()["assumed"].items()}
    relevant = {
        name: value
        for name, value in settings.items()
        if why_relevant(name, framework) and not any(_alike(value, one) for one in usual.get(plain_name(name), ()))
    }
    return relevant, {name: value for name, value in settings.items() if name not in relevant}


def why_relevant(name: str, framework: str) -> str:
    """Describe the effect of an unmodelled setting; "" if unknown."""
    names = {plain_name(name)}
    if framework == SECTIONED:
        names.add(plain_name(name).rpartition(".")[2])
    effects = (what for pattern, what in _unmodelled(framework) if any(map(pattern.fullmatch, names)))
    return next(effects, "")
