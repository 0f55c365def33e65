"""End of a run by the lines of its log: out of memory, another error, or neither."""

import re
from collections.abc import Sequence
from typing import Literal

OUT_OF_MEMORY = re.compile(
    r"""(?:CUDA|HIP|NPU|XPU|MUSA)\ out\ of\ memory
    | (?:CUDA|HIP|NPU)\ (?:driver\ )?error:?\ (?:out\ of\ memory|.*ErrorMemoryAllocation)
    | \bOutOfMemoryError\b
    | RESOURCE_EXHAUSTED:.*(?:out\ of\ memory|allocate|allocation)
    | CUBLAS_STATUS_ALLOC_FAILED
    | [Ff]ailed\ to\ CUDA\ calloc
    | Ran\ out\ of\ memory\ in\ memory\ space\ hbm""",
    re.VERBOSE | re.IGNORECASE,
)
_RECOVERED_ALLOCATION = re.compile(r"not a failure|retr(?:y|ies)|\bwarning\b", re.IGNORECASE)
_EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit|Failure|Timeout)\b(?::.*)?$")
_CHAINED = re.compile(r"During handling of the above exception|The above exception was the direct cause")
_CRASH = re.compile(
    r"""(?:Segmentation\ fault|Fatal\ Python\ error|Bus\ error|terminate\ called\ after
    | oom-kill\ event|Out\ of\ memory:\ Killed\ process
    | DUE\ TO\ TIME\ LIMIT|STEP\ .*CANCELLED\ AT|JOB\ .*CANCELLED\ AT
    | Watchdog\ caught\ collective\ operation\ timeout|NCCL\ WARN\ .*(?:failed|error)
    | failed\ \(exitcode:\ -?[1-9]
    | exited\ with\ exit\ code\ [1-9]|Exited\ with\ exit\ code\ [1-9]|Signal\ (?:6|7|9|11)\ \(SIG\w+\)\ received)""",
    re.VERBOSE,
)
_CONSEQUENCE = re.compile(r"ChildFailedError|SignalException|CalledProcessError|DistBackendError|BrokenPipe|SystemExit")
"""Errors of other processes once one has failed."""
_MARKS = (
    "memory exhausted alloc error exception interrupt exit fail timeout fault terminate oom cancelled signal".split()
)
"""Texts of which every error line contains one; other lines are not searched."""
_NEAR = 24
"""Number of lines within which a chained exception is announced, with eight ranks writing in turn."""
End = tuple[Literal["oom", "failed"], int, str]
"""Kind of error, the number of its line, and the line."""


def end_of(lines: Sequence[str]) -> End | None:
    """Return the first cause of a failure; None without an error.

    Errors that other processes report after a failure count only if the log has no cause. Running out of memory counts
    before all other errors, since several ranks print theirs in any order.
    """
    crashes, consequences = list[End](), list[End]()
    for number, line in enumerate(lines):
        lower = line.lower()
        if not any(mark in lower for mark in _MARKS):
            continue
        text = line.strip()
        if OUT_OF_MEMORY.search(text) and not _RECOVERED_ALLOCATION.search(text):
            return "oom", number, text
        if _EXCEPTION.match(text) and not _is_chained(lines, number):
            (consequences if _CONSEQUENCE.search(text) else crashes).append(("failed", number, text))
        elif _CRASH.search(text):
            consequences.append(("failed", number, text))
    return next(iter([*crashes, *consequences]), None)


def _is_chained(lines: Sequence[str], number: int) -> bool:
    """Whether another exception was raised while this one was handled."""
    return any(_CHAINED.search(line) for line in lines[number + 1 : number + _NEAR])
