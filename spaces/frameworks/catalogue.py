"""The catalogue of framework profiles: one YAML file each, checked against the dataclasses that it fills.

A file that is ``like`` another one has only the differences. Users' files have the same form.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from forerun.spaces.documents import Document, read_document, validate
from forerun.spaces.documents.package_data import package_names, package_yaml
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.frameworks.profile import FrameworkProfile, Legality
from forerun.spaces.frameworks.switches import all_switches, as_word, of_release, with_settings

ENDINGS = (".yaml", ".yml", ".json")


@cache
def framework_names() -> tuple[str, ...]:
    """Return the names of all profiles, sorted."""
    return package_names("forerun.spaces.frameworks", "data")


@cache
def load_framework(name: str) -> FrameworkProfile:
    """Return one profile of the catalogue; ``NAME@VERSION`` is an earlier release.

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
    return _profile(name, package_yaml("forerun.spaces.frameworks", "data", f"{name}.yaml"))


def resolve_framework(name: str) -> FrameworkProfile:
    """Return a profile of the catalogue, or of a user's file that is ``like`` one.

    Raises:
        RequestError: the name does not exist in either, or the file has a key or value that no profile has.
    """
    if Path(name).suffix.lower() not in ENDINGS:
        return load_framework(name)
    return _profile(Path(name).stem, _read(read_document(Path(name))))


def _profile(name: str, data: Mapping[str, Any]) -> FrameworkProfile:
    """Return the profile of a file."""
    # The parts are the profile that the file is ``like``, its switches (unnamed switches have their settings without a
    # flag), and its fields.
    stated = _tupled(data)
    settings = {switch: as_word(setting) for switch, setting in (stated.pop("switches", None) or {}).items()}
    like, legality = stated.pop("like", None), stated.pop("legality", {})
    if like is None:
        base = FrameworkProfile(name=name, legality=Legality(**_tupled(legality)), lineage=(name,), **stated)
        return with_settings(base, _unset(name) | settings)
    base = load_framework(like)
    version = str(stated.pop("version", base.version))
    if version != base.version:
        base = of_release(base, version)
    base = replace(base, name=name, lineage=(name, *base.lineage), legality=replace(base.legality, **_tupled(legality)))
    base = with_settings(base, _unset(name) | settings)
    kept = tuple(item for item in base.switches if all_switches()[item[0]].support(base) is not None)
    return replace(base, version=version, switches=kept, **stated)


def _unset(name: str) -> dict[str, str]:
    """Return the settings of a framework's own switches without a flag."""
    supports = {switch: one.frameworks.get(name) for switch, one in all_switches().items()}
    return {switch: support.unset for switch, support in supports.items() if support is not None}


def _tupled(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}


def _read(document: Document) -> dict[str, Any]:
    """Return the entries of a user's file."""
    from forerun.spaces.frameworks.schema import profile_schema  # imports pydantic, which the catalogue does not need

    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("like"), str):
        raise RequestError(f"{document.source}: a framework is a mapping with `like: NAME`, and in what it differs")
    if data["like"].partition("@")[0] not in framework_names():
        raise RequestError(f"{document.where(('like',))}: {unknown('framework', data['like'], framework_names())}")
    return validate(document, profile_schema(_legality_words)).model_dump(exclude_unset=True, by_alias=True)


def _legality_words(field: str) -> tuple[str, ...]:
    """Return the values of one field, such as schedules, in the catalogue's profiles."""
    choices = (getattr(load_framework(name).legality, field) for name in framework_names())
    return tuple(dict.fromkeys(word for words in choices for word in words))
