"""The catalogue of framework profiles: one YAML file each, checked against the dataclasses they fill.

A file that is ``like`` another one states only in what it differs.
"""

from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from forerun.spaces.errors import unknown
from forerun.spaces.frameworks.profile import FrameworkProfile, Legality

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def framework_names() -> tuple[str, ...]:
    """Return the names of all profiles, sorted."""
    data = files("forerun.spaces.frameworks").joinpath("data")
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in data.iterdir() if entry.name.endswith(".yaml")))


@cache
def load_framework(name: str) -> FrameworkProfile:
    """Return one profile.

    >>> load_framework("megatron-lm").legality.zero_stages
    (0, 1)

    Raises:
        RequestError: no profile has this name.
    """
    if name not in framework_names():
        raise unknown("framework", name, framework_names())
    text = files("forerun.spaces.frameworks").joinpath("data", f"{name}.yaml").read_text(encoding="utf-8")
    data = _tupled(yaml.load(text, Loader=_LOADER))
    if "like" in data:
        return replace(load_framework(data.pop("like")), name=name, **data)
    legality = _tupled(data.pop("legality"))
    return FrameworkProfile(name=name, legality=Legality(**legality), **data)


def _tupled(data: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
