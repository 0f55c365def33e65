"""Common parts of printed JSON documents: schema, text, and versions of forerun and its cost model.

No heavy package is imported, since verbs that print a catalogue need none.
"""

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from forerun.search.files.release import VERSION
from forerun.spaces.escaping import visible_json
from forerun.spaces.plain import plain

ROOMS = ("forerun.simulator", "forerun.spaces")
"""Packages whose code and data decide legality and cost of strategies."""
SUFFIXES = (".py", ".yaml")


@cache
def cost_model_version() -> str:
    """Return 16 hexadecimal digits that change with the package's version, a rule or a constant."""
    digest = hashlib.sha256(VERSION.encode())
    for room in ROOMS:
        for name, content in _files(resources.files(room), room):
            digest.update(f"\0{name}\0{len(content)}\0".encode())
            digest.update(content)
    return digest.hexdigest()[:16]


def _files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of every hashed file, sorted by name."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            if not entry.name.startswith(("__", ".")):
                yield from _files(entry, f"{name}/{entry.name}")
        elif entry.name.endswith(SUFFIXES):
            yield f"{name}/{entry.name}", entry.read_bytes()


SCHEMA = 1
"""Version of every JSON document that forerun prints; it grows when a field changes its meaning or is removed."""


def dump_json(document: Mapping[str, Any]) -> str:
    """Return JSON text that every reader accepts: null for infinite numbers and NaN."""
    return visible_json(json.dumps(plain(document), indent=2, allow_nan=False, ensure_ascii=False))


@cache
def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    import numpy  # imported late: a list of the catalogue needs none

    return {"forerun": VERSION, "python": platform.python_version(), "numpy": numpy.__version__}
