"""Enumeration of a slice of a space as its legal candidates.

A slice ``[low, high)`` of the index is grown axis by axis like a tree. As soon as all axes of a law are known, prefixes
that break it are counted (by their number of candidates) and dropped, so the time for a slice depends only on its legal
candidates. The reason of a candidate is the first law that it breaks, in order of depth and of ``RULES``, independent
of the slice.

Where all candidates below a prefix are known to be hopeless, its legal candidates are counted without being built:
prefixes that the remaining laws cannot distinguish are counted as one.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.strategies.axes import AXES
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.rules import RULES, Rule
from forerun.spaces.strategies.software import READ_BY_SOFTWARE, choices_of_software, turned_on
from forerun.spaces.strategies.table import COLUMNS, CodeArray, IntArray, Mask, StrategyTable

ASKED_AFTER = "mbs"
"""The axis after which ``hopeless`` is applied to prefixes. Later axes multiply candidates and hardly change their
time."""
_EARLIER = AXES[: AXES.index(ASKED_AFTER) + 1]
LATER = AXES[len(_EARLIER) :]
AT_ONCE = 1 << 22
"""Candidates below prefixes, legal or not, that are grown at once, which limits memory in any space."""
Hopeless = Callable[[StrategyTable], Mask]
"""Function that marks the prefixes (a table of axes up to ``ASKED_AFTER``) without a wanted candidate below."""


def _read_by(rule: Rule) -> tuple[str, ...]:
    """Return the columns that a law reads."""
    return (*rule.axes, "dp") if "gpus" in rule.axes else rule.axes


_RULES_AT = {axis: tuple(r for r in RULES if r.depth == depth) for depth, axis in enumerate(AXES, start=1)}


def _read_from(axis: str, choices: Mapping[str, IntArray]) -> tuple[str, ...]:
    """Return the columns read by the breakable laws of an axis or of later axes."""
    later = [rule for rule in RULES if rule.depth > AXES.index(axis) and _may_break(rule, choices)]
    return tuple(dict.fromkeys(name for rule in later for name in _read_by(rule)))


def _may_break(rule: Rule, choices: Mapping[str, IntArray]) -> bool:
    """Check whether some choice of the axis of a law can break it."""
    return rule.asked is None or bool(choices[rule.asked].any())


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumeratedPart:
    """Part of a slice."""

    table: StrategyTable
    """Legal candidates."""
    rejected: Counter[str]
    """Number of illegal candidates by reason code."""
    passed: int
    """Number of legal candidates that a bound excluded without scoring."""


def enumerated(
    choices: Mapping[str, tuple[int, ...]],
    context: Context,
    low: int,
    high: int,
    *,
    hopeless: Hopeless | None = None,
    at_once: int = AT_ONCE,
) -> Iterator[EnumeratedPart]:
    """Yield the candidates with index in ``[low, high)`` in order, in one part or more.

    Prefixes that ``hopeless`` returns and whose candidates are all in the slice are skipped. ``at_once``: limit of
    candidates, legal or not, below the prefixes of one part (which has at least one prefix).
    """
    growth = _Growth(choices, context, low, high)
    growth.grow(_EARLIER)
    passed = 0
    if hopeless is not None and len(growth.prefix):
        over = growth.inside() & hopeless(growth.table())
        if over.any():
            passed = growth.tallied(np.flatnonzero(over)).legal(growth.rejected)
            growth.keep(~over)
    step = max(1, at_once // max(growth.below, 1))
    for start in range(0, max(len(growth.prefix), 1), step):
        part = growth.part(slice(start, start + step))
        part.grow(LATER)
        part.derive_software()
        yield EnumeratedPart(table=part.table(), rejected=part.rejected + growth.rejected, passed=passed)
        growth.rejected, passed = Counter(), 0


def prefixes(choices: Mapping[str, tuple[int, ...]], context: Context, axes: tuple[str, ...]) -> StrategyTable:
    """Return the combinations of the first ``axes`` that satisfy their laws."""
    growth = _Growth(choices, context, 0, math.prod(map(len, choices.values())))
    growth.grow(axes)
    return growth.table()


def below(
    choices: Mapping[str, tuple[int, ...]], context: Context, prefixes: IntArray, axes: tuple[str, ...]
) -> StrategyTable:
    """Return the legal candidates below some prefixes.

    The prefixes are numbers, in ascending order, of legal combinations of the first ``axes``, which include ``cp``.
    """
    growth = _Growth(choices, context, 0, math.prod(map(len, choices.values())))
    growth.start(prefixes, axes)
    growth.grow(AXES[len(axes) :])
    growth.derive_software()
    return growth.table()


class _Growth:
    """Prefixes of the candidates of one slice during their growth."""

    def __init__(self, choices: Mapping[str, tuple[int, ...]], context: Context, low: int, high: int) -> None:
        self.context = context
        self.choices: dict[str, IntArray] = {axis: np.array(v, dtype=np.int64) for axis, v in choices.items()}
        self.below = math.prod(map(len, choices.values()))
        self.low, self.high = max(0, low), min(high, self.below)
        self.codes: dict[str, CodeArray] = {}
        self.prefix = np.zeros(1 if self.high > self.low else 0, dtype=np.int64)
        self.rejected: Counter[str] = Counter()

    def start(self, prefixes: IntArray, axes: tuple[str, ...]) -> None:
        """Start with combinations of the first ``axes`` instead of the root."""
        radices = [len(self.choices[axis]) for axis in axes]
        digits = np.unravel_index(prefixes, radices)
        self.codes = {axis: digit.astype(np.uint16) for axis, digit in zip(axes, digits, strict=True)}
        self.prefix, self.below = prefixes, self.below // math.prod(radices)
        self._derive_dp()

    def part(self, rows: slice) -> "_Growth":
        """Return a part of the prefixes, to be extended separately."""
        other = _Growth.__new__(_Growth)
        other.context, other.choices, other.below = self.context, self.choices, self.below
        other.low, other.high, other.rejected = self.low, self.high, Counter()
        other.prefix, other.codes = self.prefix[rows], {axis: codes[rows] for axis, codes in self.codes.items()}
        return other

    def grow(self, axes: tuple[str, ...]) -> None:
        """Add axes, and drop prefixes that break a law once its axes are known."""
        for axis in axes:
            self._expand(axis)
            for rule in _RULES_AT[axis]:
                self._cut(rule)

    def inside(self) -> Mask:
        """Mark the prefixes whose candidates are all in the slice."""
        starts = self.prefix * self.below
        return np.asarray((starts >= self.low) & (starts + self.below <= self.high))

    def tallied(self, rows: NDArray[np.intp]) -> "_Tally":
        """Return the count of some prefixes."""
        codes = {axis: codes[rows] for axis, codes in self.codes.items()}
        return _Tally(self.context, self.choices, codes, self.below)

    def keep(self, rows: Mask | NDArray[np.intp]) -> None:
        """Keep some prefixes and drop the others."""
        self.prefix = self.prefix[rows]
        self.codes = {axis: codes[rows] for axis, codes in self.codes.items()}

    def table(self) -> StrategyTable:
        """Return the known columns; ``choices`` has the choices of all axes."""
        return StrategyTable(
            choices={axis: self.choices[axis] for axis in COLUMNS if axis in self.choices},
            codes={axis: self.codes[axis] for axis in COLUMNS if axis in self.codes},
            index=self.prefix,
        )

    def _expand(self, axis: str) -> None:
        """Give every prefix one child per choice of ``axis``, except children outside the slice."""
        radix = len(self.choices[axis])
        if radix == 1:
            self.codes[axis] = np.zeros(len(self.prefix), dtype=np.uint16)
            if axis == "cp":
                self._derive_dp()
            return
        self.below //= radix
        children = (self.prefix[:, None] * radix + np.arange(radix, dtype=np.int64)).ravel()
        codes = _children(self.codes, axis, radix, len(self.prefix))
        first, last = self.low // self.below, max(self.high - 1, 0) // self.below
        if len(children) and (children[0] < first or children[-1] > last):
            inside = slice(int(np.searchsorted(children, first)), int(np.searchsorted(children, last, side="right")))
            children, codes = children[inside], {a: c[inside] for a, c in codes.items()}
        self.prefix, self.codes = children, codes
        if axis == "cp":
            self._derive_dp()

    def _derive_dp(self) -> None:
        """Add the column ``dp``, which follows from gpus, pp, tp and cp (0 where it does not divide)."""
        gpus, pp, tp, cp = (self.choices[axis][self.codes[axis]] for axis in ("gpus", "pp", "tp", "cp"))
        degree = pp * tp * cp
        self.choices["dp"], inverse = np.unique(np.where(gpus % degree == 0, gpus // degree, 0), return_inverse=True)
        self.codes["dp"] = inverse.reshape(-1).astype(np.uint16)

    def derive_software(self) -> None:
        """Add the column ``software``, which follows from all axes."""
        columns = {axis: self.choices[axis][self.codes[axis]] for axis in READ_BY_SOFTWARE}
        self.choices["software"] = choices_of_software(self.context)
        turned = turned_on(columns, self.context) | self.choices["switches"][self.codes["switches"]]
        self.codes["software"] = np.searchsorted(self.choices["software"], turned).astype(np.uint16)

    def _cut(self, rule: Rule) -> None:
        """Drop the prefixes that break ``rule`` and count the candidates below them."""
        broken = _broken(rule, self.choices, self.codes, self.context)
        if not broken.any():
            return
        starts = self.prefix[broken] * self.below
        counted = np.minimum(starts + self.below, self.high) - np.maximum(starts, self.low)
        self.rejected[rule.code] += int(counted.sum())
        self.keep(np.flatnonzero(~broken))


class _Tally:
    """Prefixes of candidates, each with the number (``weight``) of prefixes equal for the remaining laws."""

    def __init__(
        self, context: Context, choices: Mapping[str, IntArray], codes: dict[str, CodeArray], below: int
    ) -> None:
        self.context, self.choices, self.codes, self.below = context, choices, codes, below
        self.weight = np.ones(len(next(iter(codes.values()))), dtype=np.int64)

    def legal(self, rejected: Counter[str]) -> int:
        """Count the candidates below the prefixes that satisfy all laws; add the others to ``rejected`` by law."""
        for axis in LATER:
            self._merge([name for name in _read_from(axis, self.choices) if name in self.codes])
            radix = len(self.choices[axis])
            self.below //= radix
            self.codes = _children(self.codes, axis, radix, len(self.weight))
            self.weight = np.repeat(self.weight, radix)
            for rule in _RULES_AT[axis]:
                broken = _broken(rule, self.choices, self.codes, self.context)
                if broken.any():
                    rejected[rule.code] += int(self.weight[broken].sum()) * self.below
                    self._keep(np.flatnonzero(~broken), self.weight[~broken])
        return int(self.weight.sum())

    def _merge(self, names: list[str]) -> None:
        """Merge prefixes that are equal in all these columns, and add their weights."""
        table = StrategyTable(choices=self.choices, codes=self.codes, index=self.weight)
        distinct = table.distinct(*names)
        self.codes = {name: self.codes[name] for name in names}
        # Sums of integers below 2^53 are exact in floats.
        self._keep(distinct.rows, np.bincount(distinct.inverse, self.weight).astype(np.int64))

    def _keep(self, rows: NDArray[np.intp], weight: IntArray) -> None:
        self.codes, self.weight = {axis: codes[rows] for axis, codes in self.codes.items()}, weight


def _children(codes: Mapping[str, CodeArray], axis: str, radix: int, parents: int) -> dict[str, CodeArray]:
    """Return the codes of one child of every prefix per choice of ``axis``."""
    digits = np.tile(np.arange(radix, dtype=np.uint16), parents)
    return {**{name: np.repeat(known, radix) for name, known in codes.items()}, axis: digits}


def _broken(rule: Rule, choices: Mapping[str, IntArray], codes: Mapping[str, CodeArray], context: Context) -> Mask:
    """Mark the prefixes that break a law, evaluated on combinations of its choices if these are fewer."""
    rows = len(next(iter(codes.values())))
    if not rows or not _may_break(rule, choices):
        return np.zeros(rows, dtype=bool)
    names = _read_by(rule)
    radices = [len(choices[name]) for name in names]
    if "dp" in names or math.prod(radices) >= rows:
        return rule.illegal({name: choices[name][codes[name]] for name in names}, context)
    digits = np.unravel_index(np.arange(math.prod(radices)), radices)
    broken = rule.illegal({name: choices[name][digit] for name, digit in zip(names, digits, strict=True)}, context)
    key = np.zeros(rows, dtype=np.intp)
    for name, radix in zip(names, radices, strict=True):
        if radix > 1:
            key *= radix
            key += codes[name]
    return broken[key]
