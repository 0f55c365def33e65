"""YAML that reads the same under YAML 1.1 (PyYAML) and 1.2, and comments that stay comments."""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from forerun.search.formats.launchers import comment

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+=-]+)*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"})


class _Dumper(yaml.SafeDumper):
    """Dumper that quotes every text that a reader could misinterpret."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None if plain else '"')


_Dumper.add_representer(str, _text)


def dump_yaml(data: Mapping[str, Any], *comments: str) -> str:
    """Return ``data`` as YAML in its own order, after some comment lines."""
    lines = "".join(f"# {comment(line)}\n" for line in comments)
    return lines + yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
