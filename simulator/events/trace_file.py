"""Traces as files that Perfetto opens."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(trace: Mapping[str, Any], path: Path) -> None:
    """Write a trace, compressed where the name ends in ``.gz``; the same trace gives the same bytes.

    Raises:
        OSError: the file cannot be written.
    """
    text = json.dumps(trace, separators=(",", ":"))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode(), mtime=0))
    else:
        path.write_text(text, encoding="utf-8")
