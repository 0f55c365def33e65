"""Residual: errors common to similar strategies that constants do not explain.

After the fit of its constants, a prediction is still wrong by several per cent, and by about the same for strategies
with similar degrees and similar parts of the step (Rasmussen and Williams, Gaussian Processes for Machine Learning,
2006, chapter 2). The logarithm of measured over predicted time has a Gaussian prior whose covariance falls with the
distance between two strategies: a part common to all, a part per axis, and a part for strategies similar in everything.
Amplitudes and distances are ``ErrorPriors``, equal for all machines; predictions depend little on them (chosen without
the evaluated source they do as well).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.opgraph import PHASES, GraphContext
from forerun.simulator.opgraph.table import AnySplit, SplitTable
from forerun.simulator.score_table import TIME_PARTS, Floats
from forerun.spaces.models.parameters import parameter_count
from forerun.spaces.opgraph.mixture import Mixture
from forerun.spaces.opgraph.split import Mode
from forerun.spaces.strategies import Context, Recompute, StrategyTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPriors:
    """Expected errors before any run, as standard deviations of logarithms.

    ``common`` to all strategies beyond the constants, ``per_axis`` for single axes, ``alike`` only for strategies
    similar in everything, ``noise`` between two runs of nearly the same strategy. ``reach``: factors on the distances
    beyond which strategies are unrelated, along axes, along the shares of the parts of a step, and in kernels.
    """

    common: float = 0.02
    per_axis: float = 0.04
    alike: float = 0.08
    noise: float = 0.03
    reach_axes: float = 1.0
    reach_parts: float = 1.0
    reach_words: float = 1.0


USUAL = ErrorPriors()
"""Priors of every calibration."""

_DISTANCES: Mapping[str, float] = {
    "tp": 1.5,
    "pp": 1.5,
    "dp": 3.0,
    "mbs": 3.0,
    "microbatches": 4.0,
    "vpp": 1.5,
    "cp": 1.5,
    "ep": 1.5,
    "parameters": 2.0,
    "seq_len": 2.0,
    "zero": 2.0,
    "sp": 1.5,
    "selective": 1.5,
    "full": 1.5,
}
"""Doublings (from zero: share of a choice) by which two strategies must differ to be unrelated."""
_MAIN_AXES = 5
"""Number of leading axes with errors of their own."""
_PARTS_DISTANCE = 0.3
"""Distance beyond which shares of the parts of a step are unrelated."""
_WORDS_DISTANCE = 1.0
"""Number of differing kernels and precisions beyond which strategies are unrelated."""


@dataclass(frozen=True, slots=True)
class Features:
    """Coordinates of N strategies.

    ``numbers`` [N, F] and ``parts`` [N, P] (shares of the step) in units of their distances; ``words`` [N, W]: names of
    kernels and precision.
    """

    numbers: Floats
    parts: Floats
    words: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: NDArray[np.intp]) -> "Features":
        """Return some rows."""
        return Features(self.numbers[rows], self.parts[rows], self.words[rows])


def features_of(
    context: Context | GraphContext, table: StrategyTable | SplitTable, time_s: Mapping[str, Floats]
) -> Features:
    """Return the features of every row of ``table``; ``time_s``: the parts of its predicted time."""
    if isinstance(context, GraphContext):
        assert isinstance(table, SplitTable)
        return Features(
            numbers=numbers_of(context, table),
            parts=shares_of_phases(time_s) / _PARTS_DISTANCE,
            words=np.array(words_of(context, table), dtype=np.str_),
        )
    assert isinstance(table, StrategyTable)
    step_s = sum(time_s.values(), np.zeros(len(table)))
    return placed(context, table, np.stack([time_s[part] / step_s for part in TIME_PARTS], axis=1))


def placed(context: Context, table: StrategyTable, shares: Floats) -> Features:
    """Return the features of every row of ``table``, given the shares [N, P] of the predicted parts."""
    column = {name: table.column(name).astype(np.float64) for name in ("tp", "pp", "dp", "mbs", "vpp", "cp", "ep")}
    column["microbatches"] = np.maximum(context.workload.global_batch / (column["dp"] * column["mbs"]), 1.0)
    logs = {name: np.log2(values) for name, values in column.items()}
    recompute, ones = table.column("recompute"), np.ones(len(table))
    values = {
        **logs,
        "parameters": ones * math.log2(parameter_count(context.model)),
        "seq_len": ones * math.log2(context.workload.seq_len),
        "zero": (table.column("zero") > 0).astype(np.float64),
        "sp": table.column("sp").astype(np.float64),
        "selective": (recompute == Recompute.SELECTIVE).astype(np.float64),
        "full": (recompute == Recompute.FULL).astype(np.float64),
    }
    settings = (context.attention, ",".join(context.framework.eager), context.workload.precision)
    return Features(
        numbers=np.stack([values[name] / distance for name, distance in _DISTANCES.items()], axis=1),
        parts=shares / _PARTS_DISTANCE,
        words=np.broadcast_to(np.array(settings), (len(table), len(settings))),
    )


def joined(parts: list[Features]) -> Features:
    """Return the rows of several features, concatenated."""
    return Features(
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.parts for part in parts]),
        np.concatenate([part.words for part in parts]),
    )


def residual_covariance(one: Features, other: Features, settings: ErrorPriors = USUAL) -> Floats:
    """Return the prior covariance [N, M] of the errors of two sets of strategies."""
    numbers, others = one.numbers / settings.reach_axes, other.numbers / settings.reach_axes
    main = np.zeros((len(one), len(other)))
    for place in range(min(_MAIN_AXES, numbers.shape[1])):
        main += np.exp(-0.5 * (numbers[:, None, place] - others[None, :, place]) ** 2)
    square = _squared_distance(
        np.concatenate([numbers, one.parts / settings.reach_parts], axis=1),
        np.concatenate([others, other.parts / settings.reach_parts], axis=1),
    )
    words = one.words if one.words.strides[0] else one.words[:1]  # one row represents all, as in ``placed``
    differ = (words[:, None, :] != other.words[None, :, :]).sum(axis=2)
    similar = settings.alike**2 * np.exp(-0.5 * (square + differ / (_WORDS_DISTANCE * settings.reach_words) ** 2))
    return np.asarray(settings.common**2 + settings.per_axis**2 * main / _MAIN_AXES + similar)


def _squared_distance(one: Floats, other: Floats) -> Floats:
    """Return the squared distances [N, M] of points [N, F] and [M, F]."""
    square = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None, :] - 2.0 * row_products(one, other)
    return np.asarray(np.maximum(square, 0.0))


def row_products(one: Floats, other: Floats) -> Floats:
    """Return the products of all rows [N, F] with all rows [M, F], or with one [F].

    A row's products do not depend on the number of other rows: linear algebra libraries change the order of summation
    with this number, and the same strategy would get another time in another slice.
    """
    return np.asarray(np.einsum("nf,mf->nm" if other.ndim == 2 else "nf,f->n", one, other))


DISTANCES: Mapping[str, float] = {
    "replicas": 3.0,
    "spatial": 1.5,
    "filter": 1.5,
    "channel": 1.5,
    "pipeline": 1.5,
    "segments": 4.0,
    "batch": 3.0,
    "parameters": 2.0,
    "macs": 2.0,
}
"""Doublings by which two splits must differ to be unrelated. Values are taken from the corresponding axes of
transformers (replicas dp, parts tp and pp, samples of a device mbs, operations of a sample the sequence)."""


def numbers_of(context: GraphContext, table: SplitTable) -> Floats:
    """Return the numbers [N, F] of every split, in units of their distances."""
    rows = [_row(context, split, int(batch)) for split, batch in zip(table.splits, table.batch, strict=True)]
    return np.array([[row[name] / distance for name, distance in DISTANCES.items()] for row in rows])


def shares_of_phases(time_s: Mapping[str, Floats]) -> Floats:
    """Return the shares [N, P] of the phases of a step; a mixture does not distinguish some of them."""
    total = sum(time_s.values())
    return np.stack([time_s.get(name, np.zeros_like(total)) / total for name in PHASES], axis=1)


def words_of(context: GraphContext, table: SplitTable) -> list[tuple[str, ...]]:
    """Return the words of every split: its network, precision and special properties."""
    return [(context.model.name, context.precision, _special(split)) for split in table.splits]


def _row(context: GraphContext, split: AnySplit, batch: int) -> dict[str, float]:
    if isinstance(split, Mixture):
        replicas, segments, parts = split.devices, 1, dict[Mode, float]()
    else:
        replicas, segments, parts = split.replicas, split.segments, {split.mode: math.log2(split.parts)}
    return {
        "replicas": math.log2(replicas),
        "spatial": parts.get(Mode.SPATIAL, 0.0),
        "filter": parts.get(Mode.FILTER, 0.0),
        "channel": parts.get(Mode.CHANNEL, 0.0),
        "pipeline": parts.get(Mode.PIPELINE, 0.0),
        "segments": math.log2(segments),
        "batch": math.log2(batch / replicas),
        "parameters": math.log2(max(context.model.parameters, 1)),
        "macs": math.log2(max(context.model.macs, 1)),
    }


def _special(split: AnySplit) -> str:
    if isinstance(split, Mixture):
        return "mixture"
    return "mixed" if split.mixed else "tables" if split.spread else "uniform"
