"""Settings under other frameworks, and the part of a space that shows fastest whether anything in it fits."""

import dataclasses
from collections.abc import Iterator, Sequence

from forerun.search.formats.registry import writers_of
from forerun.search.request.setting import Setting
from forerun.spaces.frameworks import framework_names, load_framework
from forerun.spaces.frameworks.hardware import device_kinds
from forerun.spaces.frameworks.switches import on_devices


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
    own = dict(setting.request.overrides)
    least: dict[str, Sequence[object]] = {"mbs": [1], "placement": [0], "switches": ["none"]}
    if "full" in setting.context.framework.legality.recompute:
        least["recompute"] = ["full"]
    if not {"vpp", "schedule"} & set(own) and "1f1b" in setting.context.framework.legality.schedules:
        least |= {"vpp": [1], "schedule": ["1f1b"]}
    return least | own
