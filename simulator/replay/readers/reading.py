"""Search for a run's trace files, detection of their format, and reading of all ranks onto one time axis.

Formats, and versions of one format, must not be mixed: times and arguments of different profilers are not comparable.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from forerun.simulator.replay.readers.chakra import GROUPS, read_chakra
from forerun.simulator.replay.readers.dpro import is_dpro, read_dpro
from forerun.simulator.replay.readers.json_stream import JsonStream
from forerun.simulator.replay.readers.kineto import read_kineto
from forerun.simulator.replay.readers.simulated import is_simulated, read_simulated
from forerun.simulator.replay.trace import RankTrace
from forerun.spaces.errors import RequestError

_ENDINGS = (".json", ".json.gz", ".et", ".pt.trace.json", ".pt.trace.json.gz")
_SNIFFED = 200
"""Events examined to distinguish dPRO's files from the profiler's."""

Reading = Callable[[Path, int], None]
"""Progress callback with a file and its bytes read since the last call."""


def find_traces(paths: Sequence[Path]) -> list[Path]:
    """Return the trace files among ``paths`` and in folders among them, in order of their names.

    A folder without trace files contributes the files of its sub-folders (trial/host/device).

    Raises:
        RequestError: a path does not exist, or no trace file is found.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += _in_folder(path.iterdir()) or _in_folder(path.rglob("*"))
        elif path.is_file():
            files.append(path)
        else:
            raise RequestError(f"{path} does not exist; name trace files or the folder with them")
    if not files:
        names = ", ".join(str(path) for path in paths)
        raise RequestError(f"no traces in {names}: names of traces end in .json, .json.gz or .et")
    return list(dict.fromkeys(files))


def _in_folder(paths: Iterable[Path]) -> list[Path]:
    files = (one for one in paths if one.is_file() and one.name.endswith(_ENDINGS))
    return sorted(one for one in files if one.name != GROUPS and not one.name.startswith("."))


def read_traces(paths: Sequence[Path], reading: Reading | None = None) -> tuple[RankTrace, ...]:
    """Return all ranks in order; times of a rank count from one common moment on its own clock.

    Raises:
        RequestError: a file is torn, empty or not a trace, formats or versions are mixed, or ranks are missing or
            duplicate.
    """
    read: list[tuple[RankTrace, int]] = []
    for path in find_traces(paths):
        read += _read(path, None if reading is None else lambda count, path=path: reading(path, count))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    _check_versions([trace for trace, _ in read])
    traces = _numbered([trace for trace, _ in read])
    origin = min(moment for _, moment in read)
    moved = [
        replace(
            trace,
            start_s=trace.start_s + (moment - origin) * 1e-6,
            end_s=trace.end_s + (moment - origin) * 1e-6,
            gradient_s=trace.gradient_s + (moment - origin) * 1e-6,
        )
        for trace, (_, moment) in zip(traces, read, strict=True)
    ]
    return tuple(sorted(moved, key=lambda trace: trace.rank))


def _read(path: Path, progress: Callable[[int], None] | None) -> list[tuple[RankTrace, int]]:
    """Read one file in its detected format."""
    if path.name.endswith(".et"):
        return [read_chakra(path, progress)]
    for number, event in enumerate(JsonStream(path).items("traceEvents")):
        if is_dpro(event):
            return read_dpro(path, progress)
        if is_simulated(event):
            return read_simulated(path, progress)
        if number >= _SNIFFED:
            break
    return [read_kineto(path, progress)]


def _check_versions(traces: Sequence[RankTrace]) -> None:
    versions: dict[str, str] = {}
    for trace in traces:
        versions.setdefault(trace.version, trace.source)
    if len(versions) > 1:
        shown = "; ".join(f"{version} in {source}" for version, source in versions.items())
        raise RequestError(f"all traces of a run must be of one profiler and version, but got {shown}")


def _numbered(traces: Sequence[RankTrace]) -> list[RankTrace]:
    """Assign ranks to traces without one: a single trace is rank 0.

    Raises:
        RequestError: a rank is unknown or duplicate.
    """
    # Traces in numbered folders (trial/host1/gpu0) are ranked by these numbers.
    if len(traces) == 1 and traces[0].rank < 0:
        return [replace(traces[0], rank=0)]
    folders = [Path(trace.source).parts[:-1] for trace in traces]
    if all(trace.rank < 0 for trace in traces) and len(set(folders)) == len(folders):
        numbers = [tuple(map(int, re.findall(r"\d+", "/".join(folder[-2:])))) for folder in folders]
        if all(numbers) and len(set(numbers)) == len(numbers):
            order = sorted(range(len(traces)), key=numbers.__getitem__)
            return [replace(traces[place], rank=rank) for rank, place in enumerate(order)]
    seen: dict[int, str] = {}
    for trace in traces:
        if trace.rank < 0:
            raise RequestError(f"{trace.source} does not say its rank; name it as rank3.json, or profile after init")
        if trace.rank in seen:
            raise RequestError(f"rank {trace.rank} is in {seen[trace.rank]} and in {trace.source}; name each once")
        seen[trace.rank] = trace.source
    return list(traces)
