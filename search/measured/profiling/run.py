"""Measurement of a plan: operators on rank 0, collectives between all ranks, each written to disk at once.

Imports torch.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from forerun.search.measured.profiling.collectives import Between
from forerun.search.measured.profiling.journal import ProfilingJournal
from forerun.search.measured.profiling.messages import MeasuredCollective
from forerun.search.measured.profiling.operators import ProfiledOperator
from forerun.search.measured.profiling.plan import ProfilingSettings
from forerun.search.measured.profiling.runners import Unmeasurable, needed_bytes, runner
from forerun.search.measured.profiling.timing import timed

Told = Callable[[int, str], None]
"""Callback with the finished amount and the latest measurement."""
_TRIED_BYTES = 1 << 28
"""Most bytes of an operator in a trial before measuring."""


def slower_here(operators: Sequence[ProfiledOperator], settings: ProfilingSettings) -> float:
    """Estimate the ratio of measured to catalogue time of a family's operators: the median of up to three trials."""
    ratios = []
    for place in sorted({len(operators) - 1, 2 * len(operators) // 3, len(operators) // 3}, reverse=True):
        one = operators[place]
        if needed_bytes(one, settings.precision) > min(settings.largest_bytes, _TRIED_BYTES):
            continue
        try:
            once = runner(one, settings.precision, settings.device)
            ratios.append(timed(once, settings.device, 1).seconds / one.fitted_s)
        except (Unmeasurable, RuntimeError, ValueError, IndexError):
            continue
    return sorted(ratios)[len(ratios) // 2] if ratios else 1.0


def measure_operators(
    operators: Sequence[ProfiledOperator], journal: ProfilingJournal, settings: ProfilingSettings, on_progress: Told
) -> bool:
    """Measure the operators missing in the journal; return whether all are finished (False: time limit)."""
    start = time.perf_counter()
    for number, one in enumerate(operators, start=1):
        if one.key in journal.records:
            continue
        if settings.seconds is not None and time.perf_counter() - start > settings.seconds:
            return False
        journal.add({"key": one.key, "name": one.name, "shape": one.shape, **_measured(one, settings)})
        on_progress(number, one.key)
    return True


def _measured(one: ProfiledOperator, settings: ProfilingSettings) -> dict[str, Any]:
    if needed_bytes(one, settings.precision) > settings.largest_bytes:
        return {"skipped": "needs more memory than --largest-operator"}
    try:
        measured = timed(runner(one, settings.precision, settings.device), settings.device, settings.repeat)
    except Unmeasurable as error:
        return {"skipped": str(error)}
    except (RuntimeError, ValueError, IndexError) as error:  # torch's error for a missing kernel or memory
        if settings.device.startswith("cuda"):
            torch.cuda.empty_cache()
        return {"skipped": f"torch could not run it: {str(error).splitlines()[0][:120]}"}
    return {"seconds": measured.seconds, "spread": measured.spread, "count": measured.count}


def measure_messages(
    messages: Sequence[MeasuredCollective],
    done: set[str],
    between: Between,
    repeat: int,
    on_progress: Callable[[MeasuredCollective, Any], None],
) -> None:
    """Measure all messages not in ``done``; every rank calls this with the same arguments."""
    for message in messages:
        if message.key not in done:
            on_progress(message, between.measure(message, repeat))
