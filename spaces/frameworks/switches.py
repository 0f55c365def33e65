"""Switches of the software: settings of a framework that change its profile, as data.

Each is an entry of ``data/switches/*.yaml``: its name in the field, its settings with their changes of a
``FrameworkProfile``, the frameworks that have it with their flags, and its evidence. A profile has the setting of every
switch of its framework; ``switched`` returns the profile with other settings.

A switch or setting that a framework does not have raises RequestError.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.frameworks.hardware import ANY, DeviceKind, Hardware, read_hardware
from forerun.spaces.frameworks.profile import FrameworkProfile

_FILES = ("communication", "experts", "memory", "kernels")
_EVERYWHERE, _ABSENT = "any", "absent"
SHARE = "share"
"""Placeholder, in flags, of settings that are numbers between 0 and 1."""

Flags = Mapping[str, Any]
"""Settings in a framework's notation: an argument name of Megatron-LM, a key with dots elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """A switch in one framework.

    ``since``: first release with the switch; ``before``: its setting in earlier releases; ``later``: first releases of
    settings added after ``since``; ``unset``: setting without a flag.
    ``flags``: by setting, in current spelling; a setting without flags that is not ``unset`` cannot be written.
    ``also``: other accepted spellings, of earlier releases or of a part of the setting. ``values``: replace the
    switch's own changes; ``hardware``: replaces the hardware of settings that this framework runs elsewhere.
    """

    unset: str
    since: str = ""
    later: Mapping[str, str] = field(default_factory=dict)
    before: str | None = None
    flags: Mapping[str, Flags] = field(default_factory=dict)
    also: Mapping[str, Sequence[Flags]] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    hardware: Mapping[str, Hardware] = field(default_factory=dict)

    def written(self, setting: str) -> Flags | None:
        """Return the flags of a setting; None where the setting has no spelling and is not the default."""
        flags, share = self.flags.get(setting), _share(setting)
        if flags is None and share is not None and SHARE in self.flags:
            flags = {name: share if value == SHARE else value for name, value in self.flags[SHARE].items()}
        return {} if flags is None and setting == self.unset else flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One switch.

    ``values``: by setting, the changes of profile fields (``eager+`` and ``eager-`` add and remove operators).
    ``share``: field set by a number between 0 (off) and 1 (on), which is a further setting; "" for none.
    ``needs``: smallest degrees with an effect; ``moe`` requires experts, ``replicas`` means dp*cp.
    ``beside``: switch without which this one is off or has no effect.
    ``models``: by setting, the models that can have it: "dense" (no experts), "some dense" (layers), or "experts".
    ``free``: all its settings train the same model.
    ``requires``: by setting, settings of other switches, one of which is required; ``hardware``: by setting, the
    devices that have it (all devices if unnamed). ``evidence``: runs, measurements, or the source of an inference.
    """

    name: str
    title: str
    values: Mapping[str, Mapping[str, Any]]
    hardware: Mapping[str, Hardware]
    evidence: str
    frameworks: Mapping[str, Support | None]
    share: str = ""
    needs: Mapping[str, int] = field(default_factory=dict)
    beside: str = ""
    models: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    free: bool = False

    def support(self, profile: FrameworkProfile) -> Support | None:
        """Return the support of this switch by a framework, or by a parent of its profile; None without support."""
        return next((self.frameworks[name] for name in profile.lineage if name in self.frameworks), None)

    def effect(self, profile: FrameworkProfile, setting: str) -> Mapping[str, Any]:
        """Return the changes of profile fields by a setting."""
        support = self.support(profile)
        setting, share = self.read(setting), _share(setting)
        plain = setting if setting in self.values else "on"
        changes = self.values[plain] if support is None else support.values.get(plain, self.values[plain])
        return changes if plain == setting else {**changes, self.share: share}

    def required(self, setting: str) -> Mapping[str, Sequence[str]]:
        """Return the settings of other switches, one of which a setting requires."""
        return self.requires.get(setting if setting in self.values else "on", {})

    def hardware_of(self, profile: FrameworkProfile, setting: str) -> Hardware:
        """Return the devices that have a setting in a framework."""
        support, plain = self.support(profile), setting if setting in self.values else "on"
        overrides = {} if support is None else support.hardware
        return overrides.get(plain, self.hardware.get(plain, ANY))

    def read(self, setting: str) -> str:
        """Return a setting in its canonical form: shortest numbers, with 0 as off and 1 as on."""
        share = _share(setting) if self.share and setting not in self.values else None
        if share is not None:
            return {0.0: "off", 1.0: "on"}.get(share, f"{share:g}")
        if setting not in self.values:
            numbers = " or a number between 0 and 1" if self.share else ""
            raise RequestError(f"{self.name} is one of {', '.join(self.values)}{numbers}, but got {setting!r}")
        return setting


def _share(setting: str) -> float | None:
    """Return a setting as a share of at most 1 with three digits; None for other settings."""
    try:
        share = round(float(setting), 3)
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None


def as_word(value: Any) -> str:
    """Return a setting as text; YAML reads on and off as booleans."""
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


@cache
def all_switches() -> Mapping[str, Switch]:
    """Return all switches by name, in the order of applying their effects.

    >>> sorted(all_switches()["dispatcher"].values)
    ['allgather', 'alltoall', 'deepep', 'hybridep']
    """
    entries: dict[str, Mapping[str, Any]] = {}
    for name in _FILES:
        entries |= package_yaml("forerun.spaces.frameworks", "data", "switches", f"{name}.yaml")
    return {name: Switch(name=name, **_converted(entry)) for name, entry in entries.items()}


def _hardware(entry: Any) -> dict[str, Hardware]:
    """Return the hardware of each setting that is limited to some devices."""
    return {} if entry == _EVERYWHERE else {word: read_hardware(limits) for word, limits in _by_word(entry).items()}


def _by_word(mapping: Mapping[Any, Any]) -> dict[str, Any]:
    return {as_word(key): value for key, value in mapping.items()}


def _requirements(entry: Any) -> dict[str, Any]:
    return {
        setting: {other: [as_word(value) for value in allowed] for other, allowed in others.items()}
        for setting, others in _by_word(entry).items()
    }


def _frameworks(entry: Any) -> dict[str, Support | None]:
    return {
        framework: None if support == _ABSENT else Support(**_converted(support))
        for framework, support in entry.items()
    }


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "also": _by_word,
    "before": as_word,
    "flags": _by_word,
    "frameworks": _frameworks,
    "hardware": _hardware,
    "later": lambda entry: {setting: str(version) for setting, version in _by_word(entry).items()},
    "models": _by_word,
    "requires": _requirements,
    "since": str,
    "unset": as_word,
    "values": _by_word,
}
"""Conversions of the values of an entry of a switch, or of a framework that has it, by key."""


def _converted(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _CONVERSIONS[key](value) if key in _CONVERSIONS else value for key, value in entry.items()}


def available(profile: FrameworkProfile) -> dict[str, str]:
    """Return the setting of every switch of a profile, by name."""
    return dict(profile.switches)


def switched(profile: FrameworkProfile, settings: Mapping[str, str]) -> FrameworkProfile:
    """Return a profile with other settings of its switches.

    A setting that requires a unique setting of another, unnamed switch also sets that switch.
    """
    if not settings:
        return profile
    had = available(profile)
    for name in settings:
        if name not in all_switches():
            raise unknown("switch", name, all_switches())
        if name not in had:
            supports = all_switches()[name].frameworks.items()
            others = ", ".join(sorted(framework for framework, support in supports if support))
            raise RequestError(
                f"{profile.name} {profile.version} has no switch {name}, which is one of {others}; "
                f"its switches: {', '.join(sorted(had)) or 'none'}".replace("  ", " ")
            )
    named = {name: all_switches()[name].read(as_word(setting)) for name, setting in settings.items()}
    for name, setting in named.items():
        _check_release(profile, all_switches()[name], setting)
    wanted = _implied(named, had) | named
    result = with_settings(profile, wanted)
    _check_required(result, wanted)
    return result


def _check_release(profile: FrameworkProfile, switch: Switch, setting: str) -> None:
    """Raise RequestError where a setting is newer than the release of a profile."""
    support = switch.support(profile)
    later = {} if support is None else support.later
    version = later.get(setting) or (later.get(SHARE) if setting not in switch.values else None)
    if version and profile.version and release(profile.version) < release(version):
        raise RequestError(
            f"{profile.name} {profile.version} has no {switch.name}={setting}, which came with {version}"
        )


def _implied(named: Mapping[str, str], had: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of other switches that the named ones require, where the choice is unique."""
    return {
        other: needed[0]
        for name, setting in named.items()
        for other, needed in all_switches()[name].required(setting).items()
        if other in had and len(needed) == 1
    }


def with_settings(profile: FrameworkProfile, settings: Mapping[str, str]) -> FrameworkProfile:
    """Return a profile with the effects of some settings, whether or not they were available."""
    current = available(profile)
    for name, switch in all_switches().items():
        if name in settings:
            profile = replace(profile, **_changes(profile, switch.effect(profile, settings[name])))
            current[name] = switch.read(settings[name])
    ordered = tuple((name, current[name]) for name in all_switches() if name in current)
    return replace(profile, switches=ordered)


def _changes(profile: FrameworkProfile, effect: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new values of fields under an effect."""
    changes: dict[str, Any] = {}
    for name, value in effect.items():
        if name == "eager+":
            changes["eager"] = (*profile.eager, *(operator for operator in value if operator not in profile.eager))
        elif name == "eager-":
            changes["eager"] = tuple(operator for operator in profile.eager if operator not in value)
        else:
            changes[name] = tuple(value) if isinstance(value, list) else value
    return changes


def _check_required(profile: FrameworkProfile, settings: Mapping[str, str]) -> None:
    """Raise RequestError where a setting named by the user leaves another without its requirement."""
    current = available(profile)
    for name, setting in current.items():
        for other, needed in all_switches()[name].required(setting).items():
            if other in current and current[other] not in needed and (name in settings or other in settings):
                choice = " or ".join(f"{other}={word}" for word in needed)
                raise RequestError(
                    f"{name}={setting} requires {choice}, but got {other}={current[other]}; set {choice}, or change "
                    f"{name}"
                )


def on_devices(profile: FrameworkProfile, kinds: Collection[DeviceKind]) -> FrameworkProfile:
    """Return a profile in which settings unavailable on some devices are replaced, with the settings that require them.

    >>> from forerun.spaces.frameworks import load_framework
    >>> mi300x = DeviceKind(device="mi300x", vendor="AMD", architecture="CDNA3 gfx942", link="xgmi-mesh")
    >>> dict(on_devices(load_framework("megatron-lm"), [mi300x]).switches)["dispatcher"]
    'alltoall'
    """
    replaced: dict[str, str] = {}
    current = available(profile)
    for name, setting in current.items():
        if any(not all_switches()[name].hardware_of(profile, setting).runs_on(kind) for kind in kinds):
            replaced[name] = _instead(profile, all_switches()[name], setting, kinds)
    while broken := _unmet(current | replaced, replaced):
        replaced |= {name: _instead(profile, all_switches()[name], setting, kinds) for name, setting in broken}
    return with_settings(profile, replaced) if replaced else profile


def _instead(profile: FrameworkProfile, switch: Switch, setting: str, kinds: Collection[DeviceKind]) -> str:
    """Return the replacement of a setting: the former one, the one without a flag, or the first on these devices."""
    support = switch.support(profile)
    usual = [] if support is None else [support.before, support.unset]
    for other in [*usual, *switch.values]:
        if other not in (None, setting) and all(switch.hardware_of(profile, other).runs_on(one) for one in kinds):
            return str(other)
    return next(iter(switch.values))


def _unmet(settings: Mapping[str, str], replaced: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the settings that require a replaced setting of another switch."""
    return [
        (name, setting)
        for name, setting in settings.items()
        for other, needed in all_switches()[name].required(setting).items()
        if other in replaced and settings[other] not in needed and name not in replaced
    ]


def missing_hardware(profile: FrameworkProfile, settings: Collection[str], kinds: Collection[DeviceKind]) -> list[str]:
    """Return the names of a profile's ``settings`` (by switch) that some devices do not have, with reasons."""
    texts = []
    for name, setting in profile.switches:
        unmet = [all_switches()[name].hardware_of(profile, setting).unmet(one) for one in kinds]
        texts += [f"{name}={setting} {text}" for text in unmet if text and name in settings]
    return texts


def of_release(profile: FrameworkProfile, version: str) -> FrameworkProfile:
    """Return a profile as of an earlier release: switches of later releases have their former settings.

    >>> from forerun.spaces.frameworks import load_framework
    >>> of_release(load_framework("megatron-lm"), "0.10").dispatches_once
    False
    """
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6}){0,5}", version):
        raise RequestError(f"a version of {profile.name} is a number like 0.16, but got {version!r}")
    absent = {}
    for name, switch in all_switches().items():
        support = switch.support(profile)
        if name in available(profile) and support is not None and release(version) < release(support.since):
            absent[name] = support.before or support.unset
    older = with_settings(profile, absent)
    return replace(older, version=version, switches=tuple(item for item in older.switches if item[0] not in absent))


def release(version: str) -> tuple[int, ...]:
    """Return a version as comparable numbers.

    >>> release("0.16") > release("0.4.1")
    True
    """
    return tuple(int(part) for part in re.findall(r"\d+", version))


class Readable(Protocol):
    """A switch that parses its settings."""

    def read(self, text: str) -> str:
        """Return a setting in its stored form."""


def parse_switches(
    texts: Iterable[str], without: Iterable[str] = (), known: Mapping[str, Readable] | None = None
) -> dict[str, str]:
    """Read settings like ``tp-comm-overlap,dispatcher=deepep``; a name alone is on, a name in ``without`` is off.

    ``known``: the existing switches (None: those of transformers' software).

    >>> parse_switches(["tp-comm-overlap,dispatcher=deepep"], ["bf16-grads"])
    {'tp-comm-overlap': 'on', 'dispatcher': 'deepep', 'bf16-grads': 'off'}
    """
    known = all_switches() if known is None else known
    settings: dict[str, str] = {}
    words = [(word, "on") for text in texts for word in text.split(",")]
    words += [(word, "off") for text in without for word in text.split(",")]
    for word, default in words:
        name, equals, setting = word.strip().partition("=")
        if not name or (equals and default == "off"):
            raise RequestError(f"switches are written NAME or NAME=SETTING with commas between them, but got {word!r}")
        if name not in known:
            raise unknown("switch", name, known)
        if name in settings:
            raise RequestError(f"switch {name} is set twice")
        settings[name] = known[name].read(setting.strip() if equals else default)
    return settings
