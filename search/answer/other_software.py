"""Settings with another framework or further switches, and the choices that need least memory."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from forerun.search.formats.registry import writers_of
from forerun.search.request.setting import Setting
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import all_switches, framework_names, load_framework, switched
from forerun.spaces.frameworks.hardware import device_kinds
from forerun.spaces.frameworks.switches import available, on_devices
from forerun.spaces.strategies import Context


def other_frameworks(setting: Setting) -> Iterator[tuple[str, Setting]]:
    """Yield a setting under every other framework that starts on its devices, after the flag that asks for it."""
    present, here = setting.context.framework.name, device_kinds(setting.context.cluster)
    for name in framework_names():
        profile = load_framework(name)
        if name != present and writers_of(profile) and all(map(profile.hardware.runs_on, here)):
            context = dataclasses.replace(setting.context, framework=on_devices(profile, here))
            yield f"--framework {name}", dataclasses.replace(setting, context=context)


def lean(setting: Setting) -> dict[str, Sequence[object]]:
    """Return the user's restrictions and, on axes without any, the choices that need least memory.

    Where these do not fit, nothing does, and they are a hundredth of the space.
    """
    overrides = dict(setting.request.overrides)
    least: dict[str, Sequence[object]] = {"mbs": [1], "placement": [0], "switches": ["none"]}
    if "full" in setting.context.framework.legality.recompute:
        least["recompute"] = ["full"]
    if not {"vpp", "schedule"} & set(overrides) and "1f1b" in setting.context.framework.legality.schedules:
        least |= {"vpp": [1], "schedule": ["1f1b"]}
    return least | overrides


def with_switches(setting: Setting, switches: Mapping[str, str]) -> Setting | None:
    """Set further switches of a setting's framework.

    Parameters
    ----------
    setting
        The setting; switches chosen by the user stay.
    switches
        Values by name.

    Returns
    -------
    Setting | None
        None if framework or devices lack a switch, it has that value already, or it contradicts one chosen by the user.
    """
    context = setting.context
    for name, value in switches.items():
        if available(context.framework).get(name, value) == value:
            return None
    try:
        framework = switched(context.framework, {**setting.request.switches, **switches})
    except RequestError:
        return None
    if framework != on_devices(framework, device_kinds(context.cluster)):
        return None
    return dataclasses.replace(setting, context=dataclasses.replace(context, framework=framework))


def switch_words(context: Context, switches: Mapping[str, str]) -> tuple[str, str]:
    """Return switches in the form of ``--with``, and a clause on switches without a flag of the framework."""
    settings = ",".join(name if value == "on" else f"{name}={value}" for name, value in switches.items())
    without_flag = [name for name, value in switches.items() if not _has_flag(context, name, value)]
    return (
        f"--with {settings}",
        f"{context.framework.name} has no flag for {' and '.join(without_flag)}" if without_flag else "",
    )


def _has_flag(context: Context, name: str, value: str) -> bool:
    support = all_switches()[name].support(context.framework)
    return support is not None and value in support.flags
