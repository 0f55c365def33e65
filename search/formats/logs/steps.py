"""Step times in the lines of a log, one pattern a framework.

A pattern has a group with the time of a step (``s``, ``ms``), the steps in a second (``per_s``) or the ``time`` of the
line; in the last case a step's time is the difference of two lines over their steps. ``step`` is the number of the
step: a step printed by several ranks counts once.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from forerun.search.formats.logs.lines import number_of

_NUMBER = r"[0-9][0-9,]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"
_TIME = r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?)"
_THOUSANDS = {"K": 1e3, "M": 1e6, "G": 1e9}
LAG = 2
"""Most steps by which a rank's lines follow those of another."""
LONGEST_S = 1e6
"""Longest plausible step: larger numbers are not step times."""


@dataclass(frozen=True, slots=True)
class Step:
    """Time of a step in seconds; ``covered``: number of averaged steps; ``number``: number of the last step."""

    seconds: float
    covered: int = 1
    number: int | None = None


@dataclass(frozen=True, slots=True)
class StepPattern:
    """Lines of a framework with a step time; all contain the text ``mark``."""

    framework: str
    mark: str
    pattern: re.Pattern[str]


def _pattern(framework: str, mark: str, pattern: str) -> StepPattern:
    for name, text in (("MILLISECONDS", "(?P<ms>NUMBER)"), ("NUMBER", _NUMBER), ("TIME", _TIME)):
        pattern = pattern.replace(name, text)
    return StepPattern(framework, mark, re.compile(pattern))


PATTERNS = (
    _pattern(
        "megatron-lm",
        "elapsed time per iteration",
        r"(?:iteration\s+(?P<step>\d+)\s*/.*?)?"
        r"elapsed time per iteration \((?:ms\):\s*MILLISECONDS|s\):\s*(?P<s>NUMBER))",
    ),
    _pattern(
        "megatron-bridge",
        "train_step_timing",
        r"global_step[:=]\s*(?P<step>\d+).*?train_step_timing in s[:=]\s*(?P<s>NUMBER)",
    ),
    _pattern(
        "megatron-bridge",
        "train_step_timing",
        r"train_step_timing in s[:=]\s*(?P<s>NUMBER)(?:.*?global_step[:=]\s*(?P<step>\d+))?",
    ),
    _pattern(
        "megatron-bridge",
        "Step Time",
        r"Step Time\s*:\s*(?P<s>NUMBER)\s*s\b",
    ),
    _pattern(
        "nanotron",
        "time_per_iteration_ms",
        r"iteration: (?P<step>\d+)\b.*?time_per_iteration_ms: MILLISECONDS(?P<times>[KMG])?",
    ),
    _pattern(
        "maxtext",
        "completed step",
        r"completed step: (?P<step>\d+), seconds: (?P<s>NUMBER)",
    ),
    _pattern("olmo-core", "/BPS=", r"throughput/device/BPS=(?P<per_s>NUMBER)"),
    _pattern("olmo-core", "/BPS", r"throughput/device/BPS(?: \(actual avg\))?\s*[=:]\s*(?P<per_s>NUMBER)"),
    _pattern(
        "deepspeed",
        "iter time (s)",
        r"steps: (?P<step>\d+) loss: .*?iter time \(s\): (?P<s>NUMBER)",
    ),
    _pattern(
        "torchtitan",
        "tps:",
        r"TIME.*?\bstep:\s*(?P<step>\d+)\s+loss:.*?\btps:",
    ),
    _pattern(
        "deepspeed",
        "skipped=",
        r"TIME.*?\bstep=(?P<step>\d+), skipped=",
    ),
    _pattern(
        "deepspeed",
        "SamplesPerSec=",
        r"TIME.*?\d+/(?:micro_step=\d+/global_step=)?(?P<step>\d+), .*?SamplesPerSec=",
    ),
    _pattern("", "/step", r"(?P<s>NUMBER) ?s(?:ec)?/step\b"),
    _pattern(
        "",
        "iter ",
        r"\biter (?P<step>\d+): loss .*?time (?P<ms>NUMBER)\s*ms",
    ),
    _pattern(
        "",
        "ime",
        r"(?i)(?<!\w)(?:(?:step|iteration)[ _]time|iter time)(?:[ _]?\(?ms\)?)\s*[:=]\s*(?P<ms>NUMBER)",
    ),
    _pattern(
        "",
        "ime",
        r"(?i)(?<!\w)(?:(?:step|iteration)[ _]time|iter time)[:= ]+(?P<ms>NUMBER)\s*ms\b",
    ),
    _pattern(
        "",
        "ime",
        r"(?i)(?<!\w)(?:(?:step|iteration)[ _]time|iter time)(?:[ _]?\(?s(?:ec)?\)?)?\s*[:=]\s*(?P<s>NUMBER)(?!\s*ms)",
    ),
)
"""Most precise first; without a framework: scripts of users."""
_BAR = re.compile(
    r"^(?P<label>[^|%]*?):?\s*\d+%\|[^|]*\|\s*(?P<step>\d+)/(?P<total>\d+)\s*"
    r"\[(?P<elapsed>[\d:]+)<[^,]*,\s*(?P<rate>[\d.]+)\s*(?P<unit>s/it|it/s)"
)
_SUMMARY = re.compile(r"'train_steps_per_second': (?P<per_s>[0-9.]+)")
"""Line at the end of a Hugging Face trainer, with the mean of all steps."""
_OF_TRAINING = re.compile(r"^(?:$|.*\b(?:epoch|steps?|train\w*|iter\w*))", re.IGNORECASE)


def steps_of(lines: Sequence[str], framework: str | None = None) -> tuple[str, list[Step]]:
    """Find the framework and the step times of some lines.

    Parameters
    ----------
    lines
        Lines of the log (``clean_lines``).
    framework
        Framework whose patterns are tried first; None: all in their order.

    Returns
    -------
    tuple
        Name of the framework (empty: unknown) and the steps, in the order of the log; none without a match.
    """
    for one in sorted(PATTERNS, key=lambda one: one.framework != framework):
        if steps := timed_steps(one.pattern, (line for line in lines if one.mark in line)):
            return one.framework, steps
    steps = _bar_steps(lines) or timed_steps(_SUMMARY, lines)
    return "transformers" if steps else "", steps


def timed_steps(pattern: re.Pattern[str], lines: Iterable[str]) -> list[Step]:
    """Read the step times of all lines that match a pattern; of several runs, those of the last one with a time."""
    runs: list[dict[int, re.Match[str]]] = [{}]
    unnumbered = list[re.Match[str]]()
    for line in lines:
        match = pattern.search(line)
        if match is None:
            continue
        counted = number_of(match.groupdict().get("step"))
        if counted is None:
            unnumbered.append(match)
            continue
        number, run = int(counted), runs[-1]
        if run and number == next(iter(run)) and next(reversed(run)) - number > LAG:
            runs.append(run := {})
        run.setdefault(number, match)
    times = (_times(list(run.items())) for run in reversed(runs))
    return next(filter(None, times), []) or _times([(None, match) for match in unnumbered])


def _times(matches: Sequence[tuple[int | None, re.Match[str]]]) -> list[Step]:
    """Return the step times in numbered lines: those that they state, else those between their timestamps."""
    steps, stamps = list[Step](), list[tuple[int, float]]()
    for number, match in matches:
        groups = match.groupdict()
        seconds, stamp = _seconds(groups), _stamp(groups.get("time"))
        if seconds is not None and 0 < seconds < LONGEST_S:
            steps.append(Step(seconds, number=number))
        elif number is not None and stamp is not None:
            stamps.append((number, stamp))
    return steps or between(stamps)


def _seconds(groups: dict[str, str | None]) -> float | None:
    """Return the seconds in a line."""
    scale = _THOUSANDS.get(groups.get("times") or "", 1.0)
    for names, factor in ((("s", "step_s"), 1.0), (("ms", "step_ms"), 1e-3)):
        for name in names:
            if (number := number_of(groups.get(name))) is not None:
                return number * factor * scale
    rate = number_of(groups.get("per_s") or groups.get("steps_per_s"))
    return 1.0 / rate if rate is not None and rate > 1 / LONGEST_S else None


def _stamp(text: str | None) -> float | None:
    """Return a timestamp in seconds; None if invalid."""
    try:
        return datetime.fromisoformat((text or "").replace(",", ".")).timestamp()
    except (ValueError, OverflowError):
        return None


def between(stamps: Sequence[tuple[int, float]]) -> list[Step]:
    """Return the step times between numbered timestamps, in s."""
    steps = []
    for (first, begin), (last, end) in pairwise(stamps):
        if last > first and end > begin:
            steps.append(Step((end - begin) / (last - first), covered=last - first, number=last))
    return steps


def _bar_steps(lines: Iterable[str]) -> list[Step]:
    """Read the progress bar (tqdm) of the training: the step-counting bar with the largest count."""
    bars: dict[tuple[str, str], dict[int, Step]] = {}
    for line in lines:
        match = _BAR.search(line) if "it/s" in line or "s/it" in line else None
        if match is None or not _OF_TRAINING.match(match["label"].strip()):
            continue
        rate, number = number_of(match["rate"]), int(number_of(match["step"]) or 0)
        if rate is not None and 1 / LONGEST_S < rate < LONGEST_S and number > 0:
            seconds = rate if match["unit"] == "s/it" else 1.0 / rate
            label = re.sub(r"\d+", "", match["label"].strip())
            bars.setdefault((label, match["total"]), {})[number] = Step(seconds, number=number)
    furthest = max(bars.values(), key=lambda bar: max(bar), default={})
    numbers = sorted(furthest)
    covered = [after - before for before, after in zip([0, *numbers], numbers, strict=False)]
    return [Step(furthest[n].seconds, covered=count, number=n) for n, count in zip(numbers, covered, strict=True)]
