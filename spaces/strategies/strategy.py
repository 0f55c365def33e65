"""One way to split the training of a model over devices, and the one string that names it.

The string is a list of words in any order, printed in one: ``tp4 pp8 dp16 mbs1 vpp2 zero1 sp recompute=selective``.
Degrees of one and other defaults are left out; parsing and printing round-trip.
"""

import re
from dataclasses import dataclass

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.strategies.axes import SPELLING, Placement, Recompute, Schedule, Split

_DEGREES = ("dp", "tp", "pp", "cp", "ep", "etp", "mbs", "vpp")
_WORD = re.compile(r"(dp|tp|pp|cp|etp|ep|mbs|vpp|zero)=?(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A flat strategy; ``dp * tp * pp * cp`` devices work on it.

    ``ep`` and ``etp`` re-use the same devices for the experts: ``dp * cp * tp = edp * ep * etp`` on every stage.
    ``layers_per_stage`` overrides ``split`` by naming the layers of every pipeline stage (None: by rule).

    Raises:
        RequestError: a degree is below one, or ``zero`` is not 0 to 3.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    mbs: int = 1
    vpp: int = 1
    schedule: Schedule = Schedule.ONE_F_ONE_B
    split: Split = Split.EVEN
    zero: int = 0
    sp: bool = False
    recompute: Recompute = Recompute.NONE
    placement: Placement = Placement.TP_CP_EP_DP_PP
    layers_per_stage: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in _DEGREES:
            if getattr(self, name) < 1:
                raise RequestError(f"{name} must be at least 1, but got {name}={getattr(self, name)}")
        if not 0 <= self.zero <= 3:
            raise RequestError(f"zero must be 0, 1, 2 or 3, but got zero={self.zero}")
        if self.layers_per_stage is not None and len(self.layers_per_stage) != self.pp:
            raise RequestError(f"layers= must name {self.pp} stages (pp), but got {len(self.layers_per_stage)}")

    @property
    def devices(self) -> int:
        """Devices that the strategy occupies."""
        return self.dp * self.tp * self.pp * self.cp

    def __str__(self) -> str:
        """Return the string form.

        >>> str(Strategy(tp=4, pp=8, dp=16, vpp=2, zero=1, sp=True, schedule=Schedule.INTERLEAVED))
        'tp4 pp8 dp16 mbs1 vpp2 zero1 sp schedule=interleaved'
        """
        words = [f"tp{self.tp}", f"pp{self.pp}", f"dp{self.dp}"]
        words += [f"{name}{getattr(self, name)}" for name in ("cp", "ep", "etp") if getattr(self, name) > 1]
        words += [f"mbs{self.mbs}"]
        words += [f"vpp{self.vpp}"] if self.vpp > 1 else []
        words += [f"zero{self.zero}"] if self.zero else []
        words += ["sp"] if self.sp else []
        words += [
            f"{axis}={SPELLING[axis][int(getattr(self, axis))]}"
            for axis in ("recompute", "schedule", "split", "placement")
            if int(getattr(self, axis))
        ]
        if self.layers_per_stage is not None:
            words.append("layers=" + ",".join(map(str, self.layers_per_stage)))
        return " ".join(words)


def parse_named(axis: str, text: str) -> int:
    """Return the number of the choice of a named axis (``schedule``, ``recompute``, ``split``, ``placement``).

    >>> parse_named("recompute", "full")
    2

    Raises:
        RequestError: no such choice.
    """
    for number, name in SPELLING[axis].items():
        if text.lower() == name:
            return number
    raise unknown(axis, text, SPELLING[axis].values())


def parse_strategy(text: str) -> Strategy:
    """Parse the string form of a strategy; words may stand in any order and be separated by blanks or commas.

    >>> parse_strategy("tp4 pp2 dp8 mbs1 sp recompute=full").devices
    64

    Raises:
        RequestError: a word is not understood or stands twice.
    """
    values: dict[str, object] = {}
    words = re.sub(r"layers=([\d,]+)", lambda match: "layers=" + match[1].replace(",", ";"), text)
    for word in re.split(r"[\s,]+", words.strip()):
        name, value = _parse_word(word)
        if name in values:
            raise RequestError(f"{name} stands twice in strategy {text!r}")
        values[name] = value
    return Strategy(**values)  # type: ignore[arg-type]  # _parse_word returns field names with values of their types


def _parse_word(word: str) -> tuple[str, object]:
    """Return the field and the value that one word of a strategy sets."""
    if match := _WORD.fullmatch(word.lower()):
        return match[1], int(match[2])
    if word.lower() == "sp":
        return "sp", True
    name, separator, value = word.partition("=")
    enums = {"schedule": Schedule, "recompute": Recompute, "split": Split, "placement": Placement}
    if separator and name in enums:
        return name, enums[name](parse_named(name, value))
    if name == "layers" and re.fullmatch(r"\d+(;\d+)*", value):
        return "layers_per_stage", tuple(int(part) for part in value.split(";"))
    raise RequestError(
        f"cannot read {word!r} in a strategy; write words like tp4 pp8 dp16 mbs1 vpp2 zero1 sp recompute=full"
    )
