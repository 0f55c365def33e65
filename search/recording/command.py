"""Run of a training command with a recorder in each of its processes, and collection of the traces."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search.recording import recorder
from forerun.spaces import system
from forerun.spaces.errors import RequestError
from forerun.spaces.reading import read_text

ENDING_S = 10.0
"""Seconds from asking a command to end until it is killed."""
MOST_STEPS = 1000
"""Most steps of a recording: a step of a large model is some 10 MB of trace."""
MOST_RECORDS = 64 << 20
"""Most bytes of the records of all ranks, 200 each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """Recording of one rank. ``trace``: the file's name, None if the training ended before the last step.

    ``steps``: optimizer steps during the recording; ``step_s``, ``before_s``: median seconds of the recorded and of the
    earlier steps.
    """

    rank: int
    host: str
    steps: int
    trace: str | None = None
    step_s: float | None = None
    before_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The traces of a command in ``folder``, by rank, and its ``exit_code``."""

    folder: Path
    first: int
    last: int
    exit_code: int
    ranks: tuple[RankRecord, ...]

    @property
    def overhead(self) -> float | None:
        """Relative slowdown of recorded steps over earlier steps, median over ranks; None if no rank has both."""
        shares = [rank.step_s / rank.before_s - 1 for rank in self.ranks if rank.step_s and rank.before_s]
        return statistics.median(shares) if shares else None


def parse_steps(text: str) -> tuple[int, int]:
    """Read ``11:16`` as the first and the last step to record.

    Raises:
        RequestError: the range cannot be read, begins too early or is too long.
    """
    first, _, last = text.partition(":")
    least = recorder.WARM_UP + 2
    if not (first.isdecimal() and last.isdecimal() and len(text) < 20):
        raise RequestError(f"--steps takes the first and the last step, as 11:16, but got {text[:40]!r}")
    if not least <= int(first) <= int(last):
        raise RequestError(
            f"--steps must begin at {least} or later (steps before warm the profiler up) and end no earlier, "
            f"but got {text}; try {least}:{max(least + 5, int(last))}"
        )
    if int(last) - int(first) >= MOST_STEPS:
        raise RequestError(f"--steps records at most {MOST_STEPS} steps, but {text} are {int(last) - int(first) + 1}")
    return int(first), int(last)


def record(command: Sequence[str], folder: Path, *, first: int, last: int, output: Any = None) -> Recording:
    """Run ``command`` and return the recordings of its ranks in the new ``folder``.

    ``output``: stream for the command's standard output in place of this process's.

    Raises:
        RequestError: the folder has files already, or the command cannot be run.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RequestError(f"{folder} has files already; name a new folder for the traces")
    except OSError as error:
        raise RequestError(f"cannot write traces to {folder}: {error.strerror}") from None
    with tempfile.TemporaryDirectory(prefix="forerun-record-") as hook:
        shutil.copy(recorder.__file__, Path(hook, "sitecustomize.py"))
        path = os.pathsep.join(filter(None, (hook, os.environ.get("PYTHONPATH"))))
        settings = {recorder.FOLDER: str(folder.absolute()), recorder.STEPS: f"{first}:{last}", "PYTHONPATH": path}
        try:
            process = system.start(command, env=os.environ | settings, stdout=output)
        except OSError as error:
            raise RequestError(f"cannot run {command[0]}: {error.strerror}") from None
        exit_code = _wait(process)
    return Recording(folder=folder, first=first, last=last, exit_code=exit_code, ranks=_ranks(folder))


def _wait(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the command; on a signal to end, terminate it, and kill it after a delay."""
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise


def _ranks(folder: Path) -> tuple[RankRecord, ...]:
    """Return the recordings of all ranks in order; a line that a full disk cut short is skipped."""
    path, records = folder / recorder.RECORDS, list[RankRecord]()
    for line in read_text(path, most=MOST_RECORDS, kind="a list of recordings").splitlines() if path.is_file() else ():
        with suppress(ValueError, TypeError):
            records.append(RankRecord(**json.loads(line)))
    return tuple(sorted(records, key=lambda record: record.rank))
