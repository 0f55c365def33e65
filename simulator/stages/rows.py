"""Stages of strategies with different stages: arrays of [stages, strategies] instead of representatives."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.layer.kinds import kind_of_entry, layer_kinds
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Context, Recompute, StrategyTable, first_layers, offload_of, stage_layers

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRows:
    """Stages of N strategies with one stage on every device, [S, N] each."""

    number: Floats
    """Index in the pipeline."""
    exists: Floats
    """1.0, or 0.0 in padding, which repeats the last stage."""
    second: NDArray[np.bool_]
    """Whether it has the degrees of the second half of a pipeline with different halves."""
    blocks: Floats
    """See ``StagePlans``, [layer kinds + 2, S, N]."""
    recomputed: Floats
    """Layers to which ``kind`` applies, [layer kinds, S, N]; the others recompute nothing."""
    kind: Ints
    """Number of a ``Recompute``."""
    tp: Floats
    dp: Floats
    pp: Floats
    cp: Floats
    ep: Floats
    etp: Floats
    mbs: Floats
    sp: NDArray[np.bool_]
    zero: Floats
    shard: Floats
    schedule: Floats
    """Number of a ``Schedule``."""
    placement: Floats
    """Number of a ``Placement``."""
    microbatches: Floats
    optimizer_away: Floats
    """Share (0 to 1) of its optimizer states on the host."""
    away: Floats
    """Share of its activations on the host."""


def stage_rows(context: Context, table: StrategyTable) -> StageRows:
    """Return the stages of all rows of a table without virtual stages."""
    depth = int(table.choices["pp"].max())
    pp = table.column("pp")
    edges = np.full((depth + 1, len(table)), context.model.layer_count, dtype=np.int64)
    edges[0] = 0
    split = table.column("split")
    kind = np.repeat(table.column("recompute")[None, :], depth, axis=0)
    first = first_layers(table.column("recompute_layers"))
    some = np.repeat(np.where(first > 0, first, -1)[None, :], depth, axis=0)
    second_tp = table.column("tp").copy()
    hosted = _as_software(context, (depth, len(table)))
    for row in range(len(table)):
        stages = int(pp[row])
        layers = stage_layers(
            context.model.layer_count, stages, 1, int(split[row]), table.custom_splits, context.head_layers
        )
        edges[1 : stages + 1, row] = np.cumsum(layers)
        choices = table.stage_choices[row] if table.stage_choices else None
        if choices is None:
            continue
        second_tp[row] = choices.second_tp or second_tp[row]
        if choices.recompute is not None:
            kind[:stages, row] = [entry.kind for entry in choices.recompute]
            some[:stages, row] = [-1 if entry.layers is None else entry.layers for entry in choices.recompute]
        if choices.offload is not None:
            hosted[:, :stages, row] = np.array(choices.offload).T
    number = np.minimum(np.arange(depth)[:, None], pp - 1)
    start, end = np.take_along_axis(edges, number, axis=0), np.take_along_axis(edges, number + 1, axis=0)
    kind, some = np.take_along_axis(kind, number, axis=0), np.take_along_axis(some, number, axis=0)
    second = (2 * number >= pp) & (second_tp != table.column("tp"))
    tp = np.where(second, second_tp, table.column("tp")).astype(np.float64)
    share = tp / table.column("tp")
    return rows_of_stages(
        context,
        start=start,
        end=end,
        some=some,
        kind=kind,
        number=number,
        exists=(np.arange(depth)[:, None] < pp).astype(np.float64),
        second=second,
        degrees={
            "tp": tp,
            "dp": table.column("dp") / share,
            "mbs": table.column("mbs") * share,
            **{axis: _spread(table, axis, depth) for axis in ("pp", "cp", "ep", "etp", "zero", "shard", "schedule")},
            "placement": _spread(table, "placement", depth),
            "sp": _spread(table, "sp", depth),
        },
        hosted=np.take_along_axis(hosted, np.broadcast_to(number, hosted.shape), axis=1),
    )


def rows_of_stages(
    context: Context,
    *,
    start: Ints,
    end: Ints,
    some: Ints,
    kind: Ints,
    number: Ints,
    exists: Floats,
    second: NDArray[np.bool_],
    degrees: dict[str, Floats],
    hosted: Floats | None = None,
) -> StageRows:
    """Return stages with the layers ``[start, end)`` of the model, the first ``some`` recomputed (negative: all).

    All arrays are [S, N]; ``degrees``: by axis. ``hosted``: shares of optimizer states and activations on the host, [2,
    S, N]; None: the software's setting.
    """
    # With B(i) the layers of each kind before index i: layers of a stage = B(end) - B(start), recomputed = B(min(start
    # + some, end)) - B(start). The last stage also has the prediction blocks.
    before = _layers_before(context.model)
    recomputed = np.where(some < 0, end, np.minimum(start + some, end))
    blocks = np.zeros((len(before) + 2, *start.shape))
    blocks[:-2] = before[:, end] - before[:, start]
    repeated = before[:, recomputed] - before[:, start]
    last = number == degrees["pp"] - 1
    predicted = np.where(last, float(context.model.mtp_layers), 0.0)
    kind_of_last = kind_of_entry(context.model)[-1]
    blocks[kind_of_last] += predicted
    repeated[kind_of_last] += np.where(some < 0, predicted, 0.0)
    blocks[-2], blocks[-1] = number == 0, last
    if context.framework.vocabulary != "ends":
        blocks[-2:] = 1.0 / degrees["pp"]
    batch = context.workload.global_batch
    if hosted is None:
        hosted = _as_software(context, start.shape)
    return StageRows(
        optimizer_away=hosted[0],
        away=hosted[1],
        number=number.astype(np.float64),
        exists=exists,
        second=second,
        blocks=blocks,
        recomputed=np.where(kind == Recompute.NONE, 0.0, repeated),
        kind=kind,
        microbatches=batch / (degrees["dp"] * degrees["mbs"]),
        **{axis: values for axis, values in degrees.items() if axis != "sp"},
        sp=(degrees["sp"] == 1) & (degrees["tp"] > 1),
    )


def _as_software(context: Context, shape: tuple[int, ...]) -> Floats:
    """Return the software's shares on the host for stages of a shape, [2, *shape]."""
    return np.stack([np.full(shape, share) for share in offload_of(context.framework, None)])


def _spread(table: StrategyTable, axis: str, depth: int) -> Floats:
    """Return a column as floats, repeated for every stage."""
    return np.repeat(table.column(axis)[None, :].astype(np.float64), depth, axis=0)


def _layers_before(model: Model) -> Floats:
    """Return [kinds, layers + 1]: the number of layers of each kind before an index."""
    kinds = np.repeat(kind_of_entry(model), [layer.count for layer in model.layers])
    is_kind = kinds[None, :] == np.arange(len(layer_kinds(model)))[:, None]
    return np.concatenate((np.zeros((len(is_kind), 1)), np.cumsum(is_kind, axis=1)), axis=1).astype(np.float64)
