"""Lines of a log without terminal codes and launcher prefixes."""

import math
import re
from collections.abc import Sequence
from typing import Any

_COLOURS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")
_PREFIX = re.compile(
    r"""\s*(?:
    \d{1,6}:\s                                # srun -l
    | \[\d+,\d+\]<std(?:out|err)>:?           # mpirun --tag-output
    | \[(?:rank|default|role|local_rank)[_\w]*?\d+\]:  # torchrun
    | \((?:\w+\s+)?pid=[^)]*\)\s              # Ray
    | std(?:out|err):\s                       # subprocesses of launchers
    | [\w.-]+:\s+(?=(?:Traceback|\[rank\d))   # pdsh
    )""",
    re.VERBOSE,
)
NARROWEST = 80
"""Columns of the narrowest terminal."""
LONGEST = 2000
"""Number of characters read per line: steps and errors are at its start."""


def clean_lines(text: str) -> list[str]:
    r"""Split a log at line ends and carriage returns, without colours and prefixes of ranks.

    >>> clean_lines("0: [rank0]:\x1b[32mstep: 1\x1b[0m\r0: step: 2")
    ['step: 1', 'step: 2']
    """
    return [_unprefixed(line[:LONGEST]) for line in re.split(r"[\r\n]+", _COLOURS.sub("", text))]


def _unprefixed(line: str) -> str:
    """Remove prefixes until none is left."""
    while match := _PREFIX.match(line):
        line = line[match.end() :]
    return line


def unwrapped(lines: Sequence[str]) -> list[str]:
    """Join lines that a terminal broke at its last column with the lines that follow them.

    >>> unwrapped(["a" * 80, "b", "c" * 80, "d"])[1][-2:]
    'cd'
    """
    width = max(map(len, lines), default=0)
    if width < NARROWEST or sum(len(line) == width for line in lines) < 2:
        return list(lines)
    joined, broken = list[str](), False
    for line in lines:
        if broken:
            joined[-1] += line
        else:
            joined.append(line)
        broken = len(line) == width
    return joined


def number_of(value: Any) -> float | None:
    """Return the finite number in a text or a table value; None without one.

    >>> number_of("1,234.5"), number_of("..00"), number_of("9" * 400)
    (1234.5, None, None)
    """
    try:
        number = float(value.replace(",", "") if isinstance(value, str) else value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
