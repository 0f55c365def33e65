"""Software whose launch scripts have Megatron-LM's arguments, or YAML files with a section of them.

``data/megatron_variants.yaml`` has the fields of ``megatron`` for each, its ``marks`` (``marked_by``) and the section
of its YAML files.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.search.formats.keys import Launcher
from forerun.search.formats.launcher_data import marked_by
from forerun.search.formats.megatron_lm import in_section, megatron
from forerun.spaces.documents.package_data import package_yaml


def _variant(name: str, *, marks: Sequence[Mapping[str, Any]], section: str = "", **fields: Any) -> Launcher:
    syntax: dict[str, Any] = {"syntax": in_section(section)} if section else {}
    return megatron(name, marks=marked_by(*marks), **syntax, **fields)


_VARIANTS = package_yaml("forerun.search.formats", "data", "megatron_variants.yaml")
TESTS, PRIMUS, SLIME, MS_SWIFT, PAI = (_variant(name, **fields) for name, fields in _VARIANTS.items())
