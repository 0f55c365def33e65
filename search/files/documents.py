"""Common parts of the JSON documents that forerun prints: schema, text, and the versions that they depend on.

Nothing heavy is imported here: verbs that only print a catalogue need no more.
"""

import json
import platform
from collections.abc import Mapping
from functools import cache
from typing import Any

from forerun.search.files.release import VERSION
from forerun.spaces.escaping import visible_json
from forerun.spaces.plain import plain

SCHEMA = 1
"""Version of every JSON document that forerun prints; it grows when a field changes its meaning or goes."""


def dump_json(document: Mapping[str, Any]) -> str:
    """Return JSON text that every reader accepts: null for numbers that are infinite or none."""
    return visible_json(json.dumps(plain(document), indent=2, allow_nan=False, ensure_ascii=False))


@cache
def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    import numpy  # here: a list of the catalogue needs none

    return {"forerun": VERSION, "python": platform.python_version(), "numpy": numpy.__version__}
