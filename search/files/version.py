"""The version of the cost model: a hash of all code and data behind a prediction."""

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from forerun.search.files.release import VERSION

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
