"""Reading of a training log: step times after warm-up, peak memory, outcome."""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from forerun.search.formats.logs.ending import End, end_of
from forerun.search.formats.logs.lines import clean_lines, number_of, unwrapped
from forerun.search.formats.logs.memory import MemoryKind, peak_of
from forerun.search.formats.logs.steps import Step, steps_of, timed_steps
from forerun.search.formats.logs.tables import rows_of, table_peak, table_steps
from forerun.spaces.errors import RequestError
from forerun.spaces.files import exists
from forerun.spaces.units import parse_seconds

LogOutcome = Literal["ok", "oom", "failed", "no progress"]
WARM_UP = 3
"""Steps skipped at the start, while kernels compile and caches and allocator warm up (Megatron-LM skips one, profilers
three); of fewer than seven only the first is skipped."""
RECOVERED = 2
"""Number of step times after an error that show a continued run."""
_TIMES = ("step_s", "step_ms", "steps_per_s")
_PEAKS = {"peak_gib": 2**30, "peak_mib": 2**20, "peak_bytes": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """Content of a training log.

    Attributes
    ----------
    framework
        Framework of the recognised lines; empty if unknown.
    step_times_s
        Seconds of a step in the order of the log, warm-up included. With one line for several steps, a value is their
        mean.
    skipped
        Number of warm-up values at the start of ``step_times_s``.
    last_step
        Number of the last step; None without step numbers.
    peak_bytes
        Largest peak memory of a device in bytes; None if the log has none.
    memory_kind
        Kind of memory of the peak: of live tensors ("allocated") or of the allocator ("reserved").
    outcome
        "ok": steps and no error; "oom": out of memory; "failed": another error; "no progress": neither.
    evidence
        Lines that decide the outcome; for "no progress" a sentence.
    """

    framework: str
    step_times_s: tuple[float, ...]
    skipped: int
    last_step: int | None = None
    peak_bytes: float | None = None
    memory_kind: MemoryKind | None = None
    outcome: LogOutcome
    evidence: tuple[str, ...] = ()

    @property
    def step_s(self) -> float | None:
        """Median seconds of the steps after the warm-up; None without a step."""
        counted = self.step_times_s[self.skipped :]
        return statistics.median(counted) if counted else None


def stated_step_s(text: str) -> float | None:
    """Return the step time that a user states in place of a log, in s; None if the text is a file or no time.

    >>> stated_step_s("9.3"), stated_step_s("210ms"), stated_step_s("train.log")
    (9.3, 0.21, None)

    Raises
    ------
    RequestError
        The time is not above 0.
    """
    if exists(Path(text)) or not re.match(r"\s*\d", text):
        return None
    seconds = parse_seconds(text if re.search(r"[a-z]\s*$", text) else f"{text}s")
    if not seconds > 0:
        raise RequestError(f"--measured takes a time above 0, but got {text}")
    return seconds


def read_log(log: str | Path, pattern: str | None = None) -> LogReport:
    r"""Read a training log.

    Parameters
    ----------
    log
        Text of the log, or the path of its file. CSV and JSON lines are read as tables of metrics.
    pattern
        Regular expression for lines with a step time, with a named group ``step_s``, ``step_ms`` or ``steps_per_s``,
        and optionally ``step`` (its number) and ``peak_gib``, ``peak_mib`` or ``peak_bytes``.

    Returns
    -------
    LogReport
        Step times, peak memory and outcome. An unrecognised log has the outcome "no progress".

    Raises
    ------
    RequestError
        The pattern is not a regular expression, or has no group with a time.

    Examples
    --------
    >>> report = read_log("step 1 took 0.5 s\nstep 2 took 0.4 s", pattern=r"took (?P<step_s>[0-9.]+) s")
    >>> report.step_s, report.outcome
    (0.4, 'ok')
    """
    text = log.read_text(encoding="utf-8", errors="replace") if isinstance(log, Path) else log
    if pattern is None and (rows := rows_of(text)) is not None:
        steps = table_steps(rows, log.name if isinstance(log, Path) else "")
        return _report("", steps, table_peak(rows), None, None)
    lines = clean_lines(text)
    compiled = None if pattern is None else _compiled(pattern)
    if compiled is None:
        name, steps = steps_of(lines)
        if not steps and len(joined := unwrapped(lines)) < len(lines):
            name, steps = steps_of(lines := joined)
        peak, kind = peak_of(lines) or (None, None)
    else:
        name, steps, kind = "", timed_steps(compiled, lines), None
        peak = _peak(compiled, lines)
    end = end_of(lines)
    if end is not None and _went_on(lines[end[1] + 1 :], name, compiled):
        end = None
    return _report(name, steps, peak, kind, end)


def _report(
    framework: str,
    steps: Sequence[Step],
    peak: float | None,
    kind: MemoryKind | None,
    end: End | None,
) -> LogReport:
    """Combine steps, peak memory and end into a report."""
    outcome: LogOutcome
    evidence: tuple[str, ...]
    if end is not None:
        outcome, evidence = end[0], (end[2],)
    elif steps:
        outcome, evidence = "ok", ()
    else:
        outcome = "no progress"
        evidence = ("no line has a step time that is known, or an error: is it a training log?",)
    numbers = [step.number for step in steps if step.number is not None]
    return LogReport(
        framework=framework,
        step_times_s=tuple(step.seconds for step in steps),
        skipped=warm_up(steps),
        last_step=max(numbers, default=None),
        peak_bytes=peak,
        memory_kind=kind,
        outcome=outcome,
        evidence=evidence,
    )


def warm_up(steps: Sequence[Step]) -> int:
    """Count the values of the warm-up at the start; never all of them."""
    if len(steps) > 2 * WARM_UP:
        covered, skipped = 0, 0
        while covered < WARM_UP:
            covered += steps[skipped].covered
            skipped += 1
        return skipped
    return min(1, max(len(steps) - 1, 0))


def _went_on(lines: Sequence[str], framework: str, pattern: re.Pattern[str] | None) -> bool:
    """Whether steps follow an error."""
    later = timed_steps(pattern, lines) if pattern is not None else steps_of(lines, framework)[1]
    return len(later) >= RECOVERED


def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a user's pattern."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise RequestError(f"{pattern!r} is not a regular expression: {error}") from None
    if not set(_TIMES) & set(compiled.groupindex):
        raise RequestError(f"the pattern {pattern!r} needs a group (?P<{_TIMES[0]}>...), or {', '.join(_TIMES[1:])}")
    return compiled


def _peak(pattern: re.Pattern[str], lines: Sequence[str]) -> float | None:
    """Return the largest peak matched by a user's pattern, in bytes."""
    peaks = [
        number * _PEAKS[name]
        for line in lines
        if (match := pattern.search(line))
        for name, text in match.groupdict().items()
        if name in _PEAKS and (number := number_of(text)) is not None
    ]
    return max(peaks, default=None)
