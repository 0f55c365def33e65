"""Megatron's pipeline layouts: ``E`` embedding, ``t`` layer, ``m`` prediction block, ``L`` loss, ``|`` next stage.

``x*n`` repeats a letter, ``(x|y)*n`` a group, commas are ignored: ``Et*3|(tt|)*29,m|L`` has 32 stages. Grammar:
``PipelineParallelLayerLayout.parse_str_to_list`` of megatron-core 0.16; virtual stage v is on pipeline rank v % pp.
"""

import itertools
import re
from collections.abc import Sequence

from forerun.spaces.errors import RequestError

LARGEST = 100_000
"""Most letters of an expanded layout: ten times the layers of any model."""

_REPEAT = re.compile(r"\(([^()*]*)\)\*(\d+)|([EtmL|])\*(\d+)")


def parse_layout(text: str, source: str) -> tuple[int, ...]:
    """Return the layers of every virtual stage.

    >>> parse_layout("Et*3|(tt|)*3,m|L", "here")
    (3, 2, 2, 2, 0, 0)

    Raises
    ------
    RequestError
        A letter is unknown, or the expanded text exceeds any model.
    """
    plain = re.sub(r"[\s,]", "", text)
    for _ in range(8):
        # The expanded length is checked before the expansion.
        extra = sum(_length(match) for match in _REPEAT.finditer(plain))
        if len(plain) + extra > LARGEST:
            raise RequestError(f"{source}: the pipeline layout {text[:60]!r} has more than {LARGEST:,} letters")
        written = _REPEAT.sub(_repeated, plain)
        if written == plain:
            break
        plain = written
    if unknown := sorted(set(plain) - set("EtmL|")):
        raise RequestError(
            f"{source}: the pipeline layout {text[:60]!r} has {' '.join(unknown)}; "
            "it is written with E t m L | and repeats like t*3 or (tt|)*4"
        )
    return tuple(stage.count("t") for stage in plain.split("|"))


def _length(match: re.Match[str]) -> int:
    body, times = (match[1], match[2]) if match[2] else (match[3], match[4])
    return len(body) * (int(times) if len(times) < 8 else LARGEST)


def _repeated(match: re.Match[str]) -> str:
    body, times = (match[1], match[2]) if match[2] else (match[3], match[4])
    return body * int(times)


def layout_text(counts: Sequence[int], mtp_layers: int = 0) -> str:
    """Return the layout of some layers per virtual stage; prediction blocks precede the loss.

    >>> layout_text((3, 4, 4, 4, 3)), layout_text((11, 13))
    ('Ettt|(tttt|)*3tttL', 'Et*11|t*13L')
    """
    stages = ["t" * count if count < 5 else f"t*{count}" for count in counts]
    stages[0] = "E" + stages[0]
    stages[-1] += "m" * mtp_layers + "L"
    parts = []
    for stage, run in itertools.groupby(stages[:-1]):
        times = len(list(run))
        parts.append(f"({stage}|)*{times}" if times > 2 else f"{stage}|" * times)
    return "".join(parts) + stages[-1]
