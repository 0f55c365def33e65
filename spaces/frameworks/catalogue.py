"""The catalogue of framework profiles: one YAML file each, checked against the dataclasses they fill.

A file that is ``like`` another one states only in what it differs. Files of users are of the same form.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from forerun.spaces.documents import Document, read_document
from forerun.spaces.errors import RequestError, nearest, unknown
from forerun.spaces.frameworks.profile import FrameworkProfile, Legality
from forerun.spaces.frameworks.switches import all_switches, as_word, of_release, with_settings

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
ENDINGS = (".yaml", ".yml", ".json")
_OWN = ("name", "lineage", "switches")
"""Fields of a profile that a file does not state as such."""


@cache
def framework_names() -> tuple[str, ...]:
    """Return the names of all profiles, sorted."""
    data = files("forerun.spaces.frameworks").joinpath("data")
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in data.iterdir() if entry.name.endswith(".yaml")))


@cache
def load_framework(name: str) -> FrameworkProfile:
    """Return one profile of the catalogue; ``NAME@VERSION`` is that of an earlier release.

    >>> load_framework("megatron-lm").legality.zero_stages
    (0, 1)

    Raises:
        RequestError: no profile has this name.
    """
    name, at, version = name.partition("@")
    if name not in framework_names():
        raise unknown("framework", name, framework_names())
    if at:
        return of_release(load_framework(name), version)
    text = files("forerun.spaces.frameworks").joinpath("data", f"{name}.yaml").read_text(encoding="utf-8")
    return _profile(name, yaml.load(text, Loader=_LOADER))


def resolve_framework(name: str) -> FrameworkProfile:
    """Return a profile of the catalogue, or of a file that is ``like`` one.

    Raises:
        RequestError: neither has this name, or the file says something that no profile has.
    """
    if Path(name).suffix.lower() not in ENDINGS:
        return load_framework(name)
    document = read_document(Path(name))
    _check(document)
    return _profile(Path(name).stem, document.data)


def _profile(name: str, data: Mapping[str, Any]) -> FrameworkProfile:
    """Return the profile that a file states: what it is like, then its switches, then its fields."""
    stated = _tupled(data)
    settings = {switch: as_word(setting) for switch, setting in (stated.pop("switches", None) or {}).items()}
    like, legality = stated.pop("like", None), stated.pop("legality", {})
    if like is None:
        base = FrameworkProfile(name=name, legality=Legality(**_tupled(legality)), lineage=(name,), **stated)
        return with_settings(base, settings)
    base = load_framework(like)
    version = str(stated.pop("version", base.version))
    if version != base.version:
        base = of_release(base, version)
    base = replace(base, name=name, lineage=(name, *base.lineage), legality=replace(base.legality, **_tupled(legality)))
    return replace(with_settings(base, settings), version=version, **stated)


def _tupled(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}


def _check(document: Document) -> None:
    """Refuse keys and values of a user's file that no profile has.

    Raises:
        RequestError: naming file, line and key of the first one.
    """
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("like"), str):
        raise RequestError(f"{document.source}: a framework is a mapping with `like: NAME`, and in what it differs")
    if data["like"].partition("@")[0] not in framework_names():
        raise RequestError(f"{document.where(('like',))}: {unknown('framework', data['like'], framework_names())}")
    known = {field.name: field for field in fields(FrameworkProfile) if field.name not in _OWN}
    for key, value in data.items():
        if key in ("like", "switches", "legality"):
            continue
        if key not in known:
            raise _unknown_key(document, (key,), (*known, "like", "switches"))
        _check_value(document, (key,), known[key].default, value)
    for part, names in (
        ("switches", tuple(all_switches())),
        ("legality", tuple(field.name for field in fields(Legality))),
    ):
        stated = data.get(part, {})
        if not isinstance(stated, dict):
            raise RequestError(f"{document.where((part,))}: this must be a mapping of keys to values")
        for key in stated:
            if key not in names:
                raise _unknown_key(document, (part, key), names)
    base = load_framework(data["like"])
    for field_name, value in data.get("legality", {}).items():
        _check_value(document, ("legality", field_name), getattr(base.legality, field_name), value)
    for switch, setting in data.get("switches", {}).items():
        if as_word(setting) not in all_switches()[switch].values:
            choices = ", ".join(all_switches()[switch].values)
            raise RequestError(f"{document.where(('switches', switch))}: one of {choices}, but got {setting!r}")


def _unknown_key(document: Document, path: tuple[str, ...], known: tuple[str, ...]) -> RequestError:
    near = nearest(path[-1], known, count=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return RequestError(f"{document.where(path)}: unknown key; {hint}")


def _check_value(document: Document, path: tuple[str, ...], like: Any, value: Any) -> None:
    """Refuse a value of another kind than the one that a field has; bytes, seconds and shares are not negative."""
    numbers = isinstance(value, int | float) and not isinstance(value, bool)
    wanted = None
    if isinstance(like, bool):
        wanted = None if isinstance(value, bool) else "true or false"
    elif isinstance(like, int | float) or (like is None and path[-1].endswith("_bytes")):
        least = -1 if path == ("apart_to_zero",) else 0
        share = path[-1].startswith("overlap_") and path[-1] != "overlap_slowdown"
        fine = numbers and least <= value < (1.0 + 1e-9 if share else float("inf"))
        wanted = None if fine else "a share between 0 and 1" if share else f"a number of at least {least}"
    elif isinstance(like, tuple):
        wanted = None if isinstance(value, list) else "a list"
    elif isinstance(like, str) or like is MISSING:
        wanted = None if isinstance(value, str) else "a text (in quotes)"
    if wanted is not None:
        raise RequestError(f"{document.where(path)}: this must be {wanted}, but got {value!r}")
