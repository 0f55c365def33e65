"""Split of the training of an operator graph over devices, and its text form.

``data16``, ``filter8``, ``data4 spatial2x2``, ``data2 pipeline4 segments8``, ``data16 mixed``: words with a name and,
except for flags, a number. Parsing and printing round-trip.
"""

import math
import re
from dataclasses import dataclass
from enum import IntEnum

from forerun.spaces.errors import RequestError, unknown


class Mode(IntEnum):
    """The axis of every layer that is divided over the devices of one replica; ``DATA``: none.

    ``SPATIAL``: the image (halo exchange). ``FILTER``: output channels (outputs are gathered). ``CHANNEL``: input
    channels (outputs are summed). ``PIPELINE``: whole layers.
    """

    DATA = 0
    SPATIAL = 1
    FILTER = 2
    CHANNEL = 3
    PIPELINE = 4


NORM_HANDLING = {
    Mode.DATA: "batch normalisation over the samples of each replica",
    Mode.SPATIAL: "batch normalisation over the part of the picture on one device",
    Mode.FILTER: "every device normalises all channels: batch normalisation is repeated",
    Mode.CHANNEL: "every device normalises all channels: batch normalisation is repeated",
    Mode.PIPELINE: "batch normalisation over each segment",
}
"""Batch normalisation of each mode; none synchronises statistics (as ParaDL also assumes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Replicas of the model, each divided over devices by ``mode``.

    Raises:
        RequestError: the parts do not fit the mode.
    """

    replicas: int = 1
    """Number of replicas."""
    mode: Mode = Mode.DATA
    parts: int = 1
    """Devices of each replica."""
    grid: tuple[int, ...] = ()
    """Parts along each spatial axis, outermost first, for ``SPATIAL``; trailing axes are not cut."""
    segments: int = 1
    """Microbatches of a replica's samples, in sequence; gradients are exchanged after the last one."""
    mixed: bool = False
    """Whether linear layers are split by filter over all devices while the rest is data-parallel."""
    spread: bool = False
    """Whether embedding tables are distributed undivided instead of copied."""

    def __post_init__(self) -> None:
        if min(self.replicas, self.parts, self.segments, *self.grid, 1) < 1:
            raise RequestError(f"numbers of a split are at least 1, but got {self.replicas} and {self.parts}")
        if self.mode is Mode.SPATIAL and math.prod(self.grid) != self.parts:
            raise RequestError(f"a spatial grid multiplies to its parts, but got {self.grid} for {self.parts}")
        if (self.mixed or self.spread) and self.mode is not Mode.DATA:
            word = "mixed" if self.mixed else "tables"
            raise RequestError(f"{word} needs data parallelism alone, but got {self.mode.name.lower()}{self.parts}")

    @property
    def devices(self) -> int:
        """Devices that the split occupies."""
        return self.replicas * self.parts

    @property
    def family(self) -> str:
        """The strategy without its numbers: ``data``, ``filter``, ``data+filter``, ``data (mixed)``."""
        name = self.mode.name.lower()
        if self.mode is Mode.DATA:
            return f"data{' mixed' if self.mixed else ''}{' tables' if self.spread else ''}"
        return f"data+{name}" if self.replicas > 1 else name

    def __str__(self) -> str:
        words = [f"data{self.replicas}"] if self.mode is Mode.DATA or self.replicas > 1 else []
        if self.mode is Mode.SPATIAL:
            words.append("spatial" + "x".join(map(str, self.grid)))
        elif self.mode is not Mode.DATA:
            words.append(f"{self.mode.name.lower()}{self.parts}")
        words += [f"segments{self.segments}"] if self.segments > 1 else []
        words += [word for word, on in (("mixed", self.mixed), ("tables", self.spread)) if on]
        return " ".join(words)


_WORD = re.compile(r"([a-z]+)([0-9]+(?:x[0-9]+)*)?")
MOST_DIGITS = 6
"""Limit of digits of a number of a split: a million devices or segments."""
_NAMES = ("data", "spatial", "filter", "channel", "pipeline", "segments", "mixed", "tables")


def parse_split(text: str) -> Split:
    """Return the split in ``text``, like ``data4 filter4``.

    Raises:
        RequestError: a word is unknown, repeated or lacks its number, or two modes are named.
    """
    fields: dict[str, tuple[int, ...]] = {}
    for word in text.lower().replace("=", "").split():
        match = _WORD.fullmatch(word)
        if match is None or match[1] not in _NAMES:
            raise unknown("word of a split", match[1] if match else word, _NAMES)
        if any(len(part) > MOST_DIGITS for part in (match[2] or "").split("x")):
            raise RequestError(f"numbers of a split have at most {MOST_DIGITS} digits, but got {word[:40]}")
        name, numbers = match[1], tuple(int(part) for part in (match[2] or "").split("x") if part)
        if name in fields:
            raise RequestError(f"{name} is given twice in the split {text!r}")
        flag = name in ("mixed", "tables")
        if flag != (not numbers) or (len(numbers) > 1 and name != "spatial"):
            example = name if flag else f"{name}{'2x2' if name == 'spatial' else '4'}"
            raise RequestError(f"the split {text!r}: write {example}")
        fields[name] = numbers
    if not fields:
        raise RequestError("an empty split; write one like data16 or data4 filter4")
    modes = [mode for mode in Mode if mode is not Mode.DATA and mode.name.lower() in fields]
    if len(modes) > 1:
        names = " and ".join(mode.name.lower() for mode in modes)
        raise RequestError(f"a split has one mode beside data, but {text!r} names {names}")
    mode = modes[0] if modes else Mode.DATA
    numbers = fields.get(mode.name.lower(), (1,)) if modes else (1,)
    return Split(
        replicas=fields.get("data", (1,))[0],
        mode=mode,
        parts=math.prod(numbers),
        grid=numbers if mode is Mode.SPATIAL else (),
        segments=fields.get("segments", (1,))[0],
        mixed="mixed" in fields,
        spread="tables" in fields,
    )
