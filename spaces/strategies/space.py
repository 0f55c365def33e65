"""The space of flat strategies: a mixed-radix index over axes, cut early where laws are broken.

A slice ``[low, high)`` of the index is grown axis by axis like a tree. As soon as all axes of a law are known, the
prefixes that break it are counted (by the number of candidates below them) and dropped, so that a slice costs what its
legal candidates cost and not what its size would. The reason given to a candidate is that of the first law, in order
of depth and then of ``RULES``, that it breaks; it does not depend on the slice.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from forerun.spaces.errors import RequestError
from forerun.spaces.strategies.axes import AXES
from forerun.spaces.strategies.context import Context
from forerun.spaces.strategies.rules import RULES, Rule
from forerun.spaces.strategies.software import choices_of_software, turned_on
from forerun.spaces.strategies.table import COLUMNS, CodeArray, Columns, IntArray, StrategyTable

_RULES_AT = tuple(tuple(rule for rule in RULES if rule.depth == depth) for depth in range(len(AXES) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategySpace:
    """All combinations of the choices of every axis, legal or not. Choices are sorted and without repetition.

    Raises:
        RequestError: an axis is missing, unknown or has no choice.
    """

    choices: Mapping[str, tuple[int, ...]]
    context: Context

    def __post_init__(self) -> None:
        if set(self.choices) != set(AXES):
            raise RequestError(f"a space names exactly the axes {', '.join(AXES)}, but got {', '.join(self.choices)}")
        for axis, values in self.choices.items():
            if not values:
                raise RequestError(f"axis {axis} has no choice; name at least one")
            if list(values) != sorted(set(values)):
                raise RequestError(f"choices of {axis} must be sorted and different, but got {values}")
        if self.size >= 1 << 62:
            raise RequestError(f"the space has {self.size:.2e} candidates and an index holds 2^62; restrict an axis")

    @property
    def size(self) -> int:
        """Number of candidates, illegal ones included."""
        return math.prod(len(self.choices[axis]) for axis in AXES)

    def table(self, low: int, high: int) -> tuple[StrategyTable, Counter[str]]:
        """Return the legal candidates with index in ``[low, high)`` and the number of illegal ones by reason code."""
        growth = _Growth(self, max(0, low), min(high, self.size))
        for depth, axis in enumerate(AXES, start=1):
            growth.expand(axis)
            if depth == len(AXES):
                growth.derive_software()
            for rule in _RULES_AT[depth]:
                growth.cut(rule)
        return growth.finish()


class _Growth:
    """Prefixes of the candidates of one slice while axes are added to them."""

    def __init__(self, space: StrategySpace, low: int, high: int) -> None:
        self.space, self.low, self.high = space, low, high
        self.choices: dict[str, IntArray] = {a: np.array(v, dtype=np.int64) for a, v in space.choices.items()}
        self.codes: dict[str, CodeArray] = {}
        self.prefix = np.zeros(1 if high > low else 0, dtype=np.int64)
        self.below = space.size
        self.rejected: Counter[str] = Counter()

    def expand(self, axis: str) -> None:
        """Give every prefix one child per choice of ``axis``; children outside the slice are left out."""
        radix = len(self.choices[axis])
        if radix == 1:
            self.codes[axis] = np.zeros(len(self.prefix), dtype=np.uint16)
            if axis == "cp":
                self._derive_dp()
            return
        self.below //= radix
        digits = np.arange(radix, dtype=np.int64)
        children = (self.prefix[:, None] * radix + digits).ravel()
        parents = len(self.prefix)
        codes = {a: np.repeat(c, radix) for a, c in self.codes.items()}
        codes[axis] = np.tile(digits.astype(np.uint16), parents)
        first, last = self.low // self.below, max(self.high - 1, 0) // self.below
        if parents and (children[0] < first or children[-1] > last):
            inside = slice(int(np.searchsorted(children, first)), int(np.searchsorted(children, last, side="right")))
            children, codes = children[inside], {a: c[inside] for a, c in codes.items()}
        self.prefix, self.codes = children, codes
        if axis == "cp":
            self._derive_dp()

    def _derive_dp(self) -> None:
        """Add the column ``dp``, which follows from gpus, pp, tp and cp (0 where it does not divide)."""
        degree = self._column("pp") * self._column("tp") * self._column("cp")
        gpus = self._column("gpus")
        dp = np.where(gpus % degree == 0, gpus // degree, 0)
        self.choices["dp"], inverse = np.unique(dp, return_inverse=True)
        self.codes["dp"] = inverse.reshape(-1).astype(np.uint16)

    def derive_software(self) -> None:
        """Add the column ``software``, which follows from all axes."""
        columns = {axis: self._column(axis) for axis in ("tp", "ep", "etp", "pp", "vpp", "sp", "recompute")}
        self.choices["software"] = choices_of_software(self.space.context)
        turned = turned_on(columns, self.space.context)
        self.codes["software"] = np.searchsorted(self.choices["software"], turned).astype(np.uint16)

    def _column(self, axis: str) -> IntArray:
        return self.choices[axis][self.codes[axis]]

    def cut(self, rule: Rule) -> None:
        """Drop the prefixes that break ``rule`` and count the candidates below them."""
        needed = (*rule.axes, "dp") if "gpus" in rule.axes else rule.axes
        columns: Columns = {axis: self._column(axis) for axis in needed}
        if len(self.prefix) == 0:
            return
        broken = rule.illegal(columns, self.space.context)
        if not broken.any():
            return
        starts = self.prefix[broken] * self.below
        counted = np.minimum(starts + self.below, self.high) - np.maximum(starts, self.low)
        self.rejected[rule.code] += int(counted.sum())
        keep = np.flatnonzero(~broken)
        self.prefix = self.prefix[keep]
        self.codes = {axis: codes[keep] for axis, codes in self.codes.items()}

    def finish(self) -> tuple[StrategyTable, Counter[str]]:
        """Return what is left."""
        table = StrategyTable(
            choices={axis: self.choices[axis] for axis in COLUMNS},
            codes={axis: self.codes[axis] for axis in COLUMNS},
            index=self.prefix,
        )
        return table, self.rejected
