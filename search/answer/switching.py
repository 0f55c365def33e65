"""Settings with further software switches, for notes and diagnoses."""

import dataclasses
from collections.abc import Mapping

from forerun.search.request.setting import Setting
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import all_switches, switched
from forerun.spaces.frameworks.hardware import device_kinds
from forerun.spaces.frameworks.switches import on_devices
from forerun.spaces.strategies import Context


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
        if all_switches()[name].support(context.framework) is None or dict(context.framework.switches)[name] == value:
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
    words = ",".join(name if value == "on" else f"{name}={value}" for name, value in switches.items())
    own = [name for name, value in switches.items() if not _has_flag(context, name, value)]
    return f"--with {words}", f"{context.framework.name} has no flag for {' and '.join(own)}" if own else ""


def _has_flag(context: Context, name: str, value: str) -> bool:
    support = all_switches()[name].support(context.framework)
    return support is not None and value in support.flags
