"""Reading of a training log: step times after warm-up, peak memory, outcome."""

import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from forerun.spaces.errors import RequestError

LogOutcome = Literal["ok", "oom", "failed", "no progress"]
WARM_UP = 3
"""Steps left out at the start: kernels are compiled, caches and allocator warm up (Megatron-LM skips one, profilers
three); of fewer than seven only the first is left out."""
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|RESOURCE_EXHAUSTED", re.IGNORECASE)
_CRASH = re.compile(r"^\S*(?:Error|Exception|Interrupt): .*$", re.MULTILINE)
_MEGATRON_STEP = r"elapsed time per iteration \(ms\):\s*(?P<step_ms>[0-9.]+)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """Content of a training log.

    Attributes
    ----------
    framework
        Name of the reader that understood the log.
    step_times_s
        Seconds of every step in the order of the log, warm-up included.
    skipped
        Steps of the warm-up, at the start of ``step_times_s``.
    peak_bytes
        Largest peak that the log prints, in bytes of one device; None where it prints none.
    outcome
        "ok": steps and no error; "oom": out of memory; "failed": another error; "no progress": neither.
    evidence
        Lines of the log that decide the outcome.
    """

    framework: str
    step_times_s: tuple[float, ...]
    skipped: int
    peak_bytes: float | None
    outcome: LogOutcome
    evidence: tuple[str, ...] = ()

    @property
    def step_s(self) -> float | None:
        """Median seconds of the steps after the warm-up; None without a step."""
        counted = self.step_times_s[self.skipped :]
        return statistics.median(counted) if counted else None


def read_log(log: str | Path, framework: str | None = None, pattern: str | None = None) -> LogReport:
    """Read a training log.

    Parameters
    ----------
    log
        Text of the log, or the path of its file.
    framework
        Name of the framework that wrote it, as in ``forerun list frameworks``; None: recognised from its lines.
    pattern
        Regular expression with a group ``step_s``, ``step_ms`` or ``steps_per_s``, and perhaps ``peak_gib``, which
        replaces the reader of the framework.

    Returns
    -------
    LogReport
        Step times, peak memory and outcome. A log without steps and errors has the outcome "no progress".

    Raises
    ------
    RequestError
        The pattern is invalid, or no reader knows the framework.
    """
    text = log.read_text(encoding="utf-8", errors="replace") if isinstance(log, Path) else log
    try:
        matches = re.finditer(pattern or _MEGATRON_STEP, text)
    except re.error as error:
        raise RequestError(f"the pattern {pattern!r} is not a regular expression: {error}") from None
    times = tuple(float(match["step_ms"]) / 1e3 for match in matches)
    skipped = WARM_UP if len(times) > 2 * WARM_UP else min(1, max(len(times) - 1, 0))
    if match := _OUT_OF_MEMORY.search(text):
        line = text[text.rfind("\n", 0, match.start()) + 1 :].split("\n", 1)[0]
        return LogReport(
            framework=framework or "megatron-lm", step_times_s=times, skipped=skipped, peak_bytes=None,
            outcome="oom", evidence=(line,),
        )  # fmt: skip
    crashes = _CRASH.findall(text)
    outcome: LogOutcome = "failed" if crashes else "ok" if times else "no progress"
    return LogReport(
        framework=framework or "megatron-lm", step_times_s=times, skipped=skipped, peak_bytes=None,
        outcome=outcome, evidence=tuple(crashes[-1:]),
    )  # fmt: skip
