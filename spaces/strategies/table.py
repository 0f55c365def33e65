"""Candidates as a structure of arrays, the only interface between the space and numpy code.

Every column is dictionary-encoded: ``codes[axis]`` (shape N, small unsigned integers) index ``choices[axis]``. A
candidate takes about 20 bytes, and distinct values of several axes are found by counting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.strategies.axes import AXES, Placement, Recompute, Schedule, Software, Split
from forerun.spaces.strategies.stage_choices import StageChoices
from forerun.spaces.strategies.strategy import Strategy

IntArray = NDArray[np.int64]
CodeArray = NDArray[np.uint16]
Columns = Mapping[str, IntArray]
Mask = NDArray[np.bool_]

CUSTOM_SPLIT = 100
"""Split values from this one on are explicit layers per stage: ``custom_splits[value - CUSTOM_SPLIT]``."""

COLUMNS = (*AXES, "dp", "software")
"""All columns of a table: the axes, the degree that follows from them, and all switches that are on. Switches are
chosen on the axis ``switches``, or follow from the other axes."""

_DENSE_KEYS = 1 << 18
SPARSE = 8
"""Ratio of possible values to rows from which sorting the rows is faster than checking every value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct:
    """Distinct combinations of some columns, K of N rows."""

    rows: NDArray[np.intp]
    """One representative row of each combination, shape K."""
    inverse: NDArray[np.intp]
    """Index of every row's combination, shape N."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyTable:
    """N candidates in canonical order."""

    choices: Mapping[str, IntArray]
    """Choices of each axis, by name."""
    codes: Mapping[str, CodeArray]
    """Index of every row into the axis's choices, shape N."""
    index: IntArray
    """Index in the source space, shape N."""
    custom_splits: tuple[tuple[int, ...], ...] = ()
    """Layers per stage of splits without a rule."""
    stage_choices: tuple[StageChoices | None, ...] = ()
    """Differences between the stages of each row; empty if all rows are flat."""

    def __len__(self) -> int:
        return len(self.index)

    def column(self, axis: str) -> IntArray:
        """Return the values of a column, shape N."""
        return self.choices[axis][self.codes[axis]]

    def take(self, rows: NDArray[np.intp] | slice) -> "StrategyTable":
        """Return the table of some rows, in the order given."""
        chosen: tuple[StageChoices | None, ...] = ()
        if self.stage_choices:
            chosen = tuple(self.stage_choices[row] for row in np.arange(len(self))[rows])
        return StrategyTable(
            choices=self.choices,
            codes={axis: codes[rows] for axis, codes in self.codes.items()},
            index=self.index[rows],
            custom_splits=self.custom_splits,
            stage_choices=chosen if any(chosen) else (),
        )

    def joined(self, others: Sequence["StrategyTable"]) -> "StrategyTable":
        """Return the rows of this table and ``others``, slices of one space that differ only in choices of ``dp``."""
        tables = (self, *others)
        dp = np.array(sorted({int(value) for table in tables for value in table.choices["dp"]}), dtype=np.int64)
        codes = {axis: np.concatenate([table.codes[axis] for table in tables]) for axis in (*AXES, "software")}
        recoded = [np.searchsorted(dp, table.choices["dp"]).astype(np.uint16)[table.codes["dp"]] for table in tables]
        return StrategyTable(
            choices={**self.choices, "dp": dp},
            codes={**codes, "dp": np.concatenate(recoded)},
            index=np.concatenate([table.index for table in tables]),
        )

    def distinct(self, *axes: str) -> Distinct:
        """Return the distinct combinations of ``axes``, numbered in canonical order; linear in N."""
        numbered = np.zeros(len(self), dtype=np.intp)
        size = 1
        limit = max(_DENSE_KEYS, 4 * len(self))
        for axis in axes:
            radix = len(self.choices[axis])
            if radix == 1:
                continue
            if size * radix > limit:
                rows, numbered = _number(numbered, size)
                size = len(rows)
            numbered = numbered * radix + self.codes[axis]
            size *= radix
        rows, inverse = _number(numbered, size)
        return Distinct(rows=rows, inverse=inverse)

    def strategy(self, row: int) -> Strategy:
        """Return one candidate as a value."""
        value = {axis: int(self.choices[axis][self.codes[axis][row]]) for axis in COLUMNS}
        layers = None if value["split"] < CUSTOM_SPLIT else self.custom_splits[value["split"] - CUSTOM_SPLIT]
        return strategy_of(value, layers, self.stage_choices[row] if self.stage_choices else None)


def strategy_of(
    values: Mapping[str, int], layers_per_stage: tuple[int, ...] | None = None, stages: StageChoices | None = None
) -> Strategy:
    """Return the strategy with these numbers in every column; explicit layers replace ``split``."""
    return Strategy(
        **{name: values[name] for name in ("dp", "tp", "pp", "cp", "ep", "etp", "mbs", "vpp", "zero", "shard")},
        recompute_layers=values["recompute_layers"],
        schedule=Schedule(values["schedule"]),
        split=Split.EVEN if layers_per_stage is not None else Split(values["split"]),
        sp=bool(values["sp"]),
        recompute=Recompute(values["recompute"]),
        placement=Placement(values["placement"]),
        layers_per_stage=layers_per_stage,
        second_tp=None if stages is None else stages.second_tp,
        stage_recompute=None if stages is None else stages.recompute,
        stage_offload=None if stages is None else stages.offload,
        software=Software(values["software"]),
    )


def _number(key: NDArray[np.intp], size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return one row for each distinct value of ``key`` (all below ``size``), and every row's index among them."""
    if len(key) * SPARSE < size:
        _, rows, inverse = np.unique(key, return_index=True, return_inverse=True)
        return rows, inverse.reshape(-1)
    first = np.full(size, -1, dtype=np.intp)
    first[key[::-1]] = np.arange(len(key) - 1, -1, -1)
    present = np.flatnonzero(first >= 0)
    number = np.empty(size, dtype=np.intp)
    number[present] = np.arange(len(present))
    return first[present], number[key]


def table_of(strategies: Sequence[Strategy]) -> StrategyTable:
    """Return the table of a list of strategies, numbered by ``index``."""
    custom = tuple(dict.fromkeys(s.layers_per_stage for s in strategies if s.layers_per_stage is not None))
    choices: dict[str, IntArray] = {}
    codes: dict[str, CodeArray] = {}
    for axis in COLUMNS:
        values = np.array([_value(strategy, axis, custom) for strategy in strategies], dtype=np.int64)
        choices[axis], inverse = np.unique(values, return_inverse=True)
        codes[axis] = inverse.reshape(-1).astype(np.uint16)
    chosen = tuple(strategy.stage_choices for strategy in strategies)
    return StrategyTable(
        choices=choices,
        codes=codes,
        index=np.arange(len(strategies), dtype=np.int64),
        custom_splits=custom,
        stage_choices=chosen if any(chosen) else (),
    )


def _value(strategy: Strategy, axis: str, custom: tuple[tuple[int, ...], ...]) -> int:
    """Return the number of a strategy's choice on one axis."""
    if axis == "gpus":
        return strategy.devices
    if axis == "split" and strategy.layers_per_stage is not None:
        return CUSTOM_SPLIT + custom.index(strategy.layers_per_stage)
    return int(getattr(strategy, axis))


def axis_values(strategy: Strategy) -> dict[str, int]:
    """Return the number of a strategy in every column, for laws.

    A strategy with explicit layers per stage has the split number after the named splits.
    """
    table = table_of([strategy])
    return {axis: int(table.column(axis)[0]) for axis in COLUMNS}
