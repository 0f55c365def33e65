"""Training logs as the files of a run: the measured step time, and the arguments that Megatron-LM prints at the start.

Step times are read for any framework (``logs``). For Megatron-LM it also reads ``throughput per GPU (TFLOP/s/GPU):
412.3``, ``global batch size: 256`` and the list of arguments `` tensor_model_parallel_size ....... 8``.
"""

import dataclasses
import math
import re
import statistics
from typing import Any

from forerun.search.formats.contract import Imported, LaunchFile, Steps
from forerun.search.formats.facts import format_of, read
from forerun.search.formats.harmless import harmless_by
from forerun.search.formats.keys import Launcher, decide
from forerun.search.formats.logs import read_log
from forerun.search.formats.megatron_read import KEYS, adjust
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Strategy

NAME, VERSION = "megatron-log", "0.20"
NO_ARGUMENTS = "the log has no list of arguments: the strategy is unknown, only the steps count"
"""The note that distinguishes logs read for steps from logs read as runs."""

_STEP = "elapsed time per iteration (ms):"
_TFLOPS = re.compile(r"throughput per GPU \(TFLOP/s/GPU\):\s*([0-9]{1,6}(?:\.[0-9]+)?)")
_BATCH = re.compile(r"global batch size:\s*([0-9]{1,9})\b")
_ARGUMENT = re.compile(r"^[^|\n]{0,80}?\b([a-z][a-z0-9_]{1,60}) \.{3,} ?(.{0,400})$", re.MULTILINE)
_WORLD = re.compile(r"using world size: (\d{1,8})")


def measured_steps(text: str, source: str) -> Steps:
    """Return the median step time of a log after its warm-up.

    Raises
    ------
    RequestError
        The log has no line with a step time.
    """
    report = read_log(text)
    if not report.step_times_s:
        raise RequestError(f"{source}: {report.evidence[0]}")
    counted = sorted(report.step_times_s[report.skipped :])
    tflops = [float(match[1]) for match in _TFLOPS.finditer(text)][report.skipped :]
    return Steps(
        step_time_s=statistics.median(counted),
        low_s=counted[math.floor(0.1 * (len(counted) - 1))],
        high_s=counted[math.ceil(0.9 * (len(counted) - 1))],
        counted=len(counted),
        skipped=report.skipped,
        tflops_per_gpu=statistics.median(tflops) if tflops else None,
    )


def parse(source: LaunchFile) -> Imported:
    """Read a log: its steps, and its printed arguments, if any."""
    steps = measured_steps(source.text, source.name)
    batch = _batch_of_steps(source.text, steps.skipped)
    arguments = {match[1]: _plain(match[2].strip()) for match in reversed([*_ARGUMENT.finditer(source.text)])}
    if not arguments:
        workload = {} if batch is None else {"global_batch": batch}
        nothing = Imported(
            format=NAME, version=VERSION, strategy=Strategy(), workload=workload, model={}, other={}, unknown={}
        )
        return dataclasses.replace(nothing, notes=(NO_ARGUMENTS,), measured=steps)
    if batch is not None:
        arguments.setdefault("global_batch_size", str(batch))
    if world := _WORLD.search(source.text):
        arguments.setdefault("world_size", world[1])
    return dataclasses.replace(read(dataclasses.replace(LAUNCHER, syntax=lambda _: arguments), source), measured=steps)


def _batch_of_steps(text: str, skipped: int) -> int | None:
    """Return the most frequent global batch of counted steps, None if lines lack it."""
    batches = [int(match[1]) for match in _BATCH.finditer(text)][skipped:]
    return statistics.mode(batches) if batches else None


def _plain(text: str) -> Any:
    """Return a printed Python value: booleans and None as such, lists of names as lists, the rest as text."""
    if text in ("True", "False"):
        return text == "True"
    if text in ("None", ""):
        return None
    if re.fullmatch(r"\[('[\w]+'(, )?)*\]", text):
        return re.findall(r"'(\w+)'", text)
    return text


def recognise(source: LaunchFile) -> bool:
    """Whether a text has step times."""
    return _STEP in source.text


LAUNCHER = Launcher(
    name=NAME,
    version=VERSION,
    title="Megatron-LM training log",
    frameworks=("megatron-lm",),
    keys=(*KEYS, decide("devices", "world_size")),
    syntax=lambda source: {},
    marks=recognise,
    harmless=harmless_by("megatron-lm"),
    adjust=adjust,
)
FORMAT = dataclasses.replace(format_of(LAUNCHER, main="train.log"), parse=parse)
