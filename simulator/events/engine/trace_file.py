"""Files of traces for Perfetto."""

import gzip
import io
import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from forerun.spaces.files import written


def write_json(trace: Mapping[str, Any], path: Path) -> None:
    """Write a trace, compressed where the name ends in ``.gz``; the same trace gives the same bytes.

    Raises:
        RequestError: the file cannot be written.
    """
    rest = {key: value for key, value in trace.items() if key != "traceEvents"}
    write_events(trace["traceEvents"], rest, path)


def write_events(events: Iterable[Mapping[str, Any]], rest: Mapping[str, Any], path: Path) -> None:
    """Write a trace from an iterator of events, followed by the ``rest`` of the document.

    Raises:
        RequestError: the file cannot be written.
    """
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with ExitStack() as stack:
        file = stack.enter_context(written(path))
        packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0)) if path.suffix == ".gz" else file
        text = stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8", newline=""))
        text.write('{"traceEvents":[')
        for number, event in enumerate(events):
            text.write(("," if number else "") + encode(event))
        text.write("]")
        for key, value in rest.items():
            text.write(f",{encode(key)}:{encode(value)}")
        text.write("}")
