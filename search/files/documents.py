"""Common parts of printed JSON documents: schema, text, and versions.

No heavy package is imported, since verbs that print a catalogue need none.
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
"""Version of every JSON document that forerun prints; it grows when a field changes its meaning or is removed."""


def dump_json(document: Mapping[str, Any]) -> str:
    """Return JSON text that every reader accepts: null for infinite numbers and NaN."""
    return visible_json(json.dumps(plain(document), indent=2, allow_nan=False, ensure_ascii=False))


@cache
def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    import numpy  # imported late: a list of the catalogue needs none

    return {"forerun": VERSION, "python": platform.python_version(), "numpy": numpy.__version__}
