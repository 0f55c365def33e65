"""Communication inside a replica: halos, gathered and added-up outputs, features of a mixed split, looked-up rows."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.costs import Collective, collective_time_s, point_to_point_time_s
from forerun.simulator.opgraph.candidates import Candidates
from forerun.simulator.opgraph.context import LayeredContext
from forerun.simulator.opgraph.layers import AXES, Floats
from forerun.simulator.opgraph.messages import reduce_s
from forerun.spaces.opgraph import WEIGHTED, Kind
from forerun.spaces.opgraph.limits import tail_start
from forerun.spaces.opgraph.split import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Seconds per step of N rows: ``halo_s`` between neighbours in space, ``collective_s`` per layer, ``tail_s`` to
    bring the parts of a picture together. ``calls_N`` counts collectives and ``pieces_N`` the pieces that they join or
    cut, which cost host time."""

    halo_s: Floats
    collective_s: Floats
    tail_s: Floats
    calls_N: Floats
    pieces_N: Floats


def tails(context: LayeredContext, candidates: Candidates) -> Floats:
    """Index of the first operator that is not split in space, per row; the number of operators for other modes."""
    count = float(len(context.model.operators))
    found: dict[tuple[int, ...], float] = {}
    starts = np.full(len(candidates), count)
    for row in np.flatnonzero(candidates.is_mode(Mode.SPATIAL)):
        grid = candidates.splits[row].grid
        if grid not in found:
            found[grid] = float(tail_start(context.model, grid))
        starts[row] = found[grid]
    return starts


def exchanges(context: LayeredContext, candidates: Candidates, tail_N: Floats) -> Exchange:
    """Return the communication of every row."""
    zeros = np.zeros(len(candidates))
    halo, collective, tail, calls, pieces = (zeros.copy() for _ in range(5))
    rows = np.flatnonzero(candidates.is_mode(Mode.SPATIAL) & (candidates.parts_N > 1))
    if rows.size:
        halo[rows], calls[rows] = _halo_s(context, candidates, tail_N, rows)
        tail[rows] = _tail_s(context, candidates, tail_N, rows)
    for mode in (Mode.FILTER, Mode.CHANNEL):
        rows = np.flatnonzero(candidates.is_mode(mode) & (candidates.parts_N > 1))
        if rows.size:
            collective[rows], calls[rows] = _product_s(context, candidates, mode, rows)
            pieces[rows] = calls[rows] * candidates.parts_N[rows] if mode is Mode.FILTER else 0.0
    rows = np.flatnonzero(candidates.mixed_N & (candidates.replicas_N > 1))
    if rows.size:
        collective[rows] += _mixed_s(context, candidates, rows)
    rows = np.flatnonzero(candidates.spread_N & (candidates.replicas_N > 1))
    if rows.size:
        collective[rows] += _table_s(context, candidates, rows)
    times = candidates.segments_N
    return Exchange(
        halo_s=times * halo,
        collective_s=times * collective,
        tail_s=times * tail,
        calls_N=times * calls,
        pieces_N=times * pieces,
    )


def _halo_s(context: LayeredContext, c: Candidates, tail_N: Floats, rows: np.ndarray) -> tuple[Floats, Floats]:
    """Rows of pixels to and from both neighbours, of the input before and of the output's gradient behind."""
    layers, cluster, profile = context.layers, context.cluster, context.profile
    batch, grid = c.local_N[rows], c.grid_NA[rows]
    before_tail = np.arange(len(layers.kind_of_L)) < tail_N[rows, None]
    seconds, calls = np.zeros(len(rows)), np.zeros(len(rows))
    # Neighbours along the last axis are numbered one apart, along the axes before by what lies inside.
    strides = np.ones_like(grid)
    for axis in range(AXES - 2, -1, -1):
        strides[:, axis] = strides[:, axis + 1] * grid[:, axis + 1]
    for number, operator in enumerate(layers.distinct):
        halo = layers.halo_UA[number]
        if not halo.any():
            continue
        times = (before_tail & (layers.kind_of_L == number)).sum(axis=1)
        own_in, own_out = (np.ceil(extents[number] / grid) for extents in (layers.input_UA, layers.output_UA))
        for axis in range(AXES):
            others = [other for other in range(AXES) if other != axis]
            cut = grid[:, axis] > 1
            faces = [operator.input[0] * halo[axis] * own_in[:, others].prod(axis=1)]
            if operator.kind is Kind.CONV and operator.inputs:
                faces.append(operator.output[0] * halo[axis] * own_out[:, others].prod(axis=1))
            neighbours = np.where(grid[:, axis] > 2, 2.0, 1.0)
            for face in faces:
                size = batch * face * context.width
                if profile.staged_bytes_per_s is not None:
                    one = 2 * size / profile.staged_bytes_per_s  # sent, then received
                else:
                    one = point_to_point_time_s(cluster, size, strides[:, axis])
                    # Where parts lie on several nodes, one pair of neighbours per border talks through the network.
                    far = point_to_point_time_s(cluster, size, max(cluster.devices_per_node, 1), lone=True)
                    one = np.where(c.parts_N[rows] > cluster.devices_per_node, np.maximum(one, far), one)
                seconds += np.where(cut, times * neighbours * one, 0.0)
                calls += np.where(cut, times, 0.0)
    return seconds, calls


def _tail_s(context: LayeredContext, c: Candidates, tail_N: Floats, rows: np.ndarray) -> Floats:
    """The parts of what the tail reads, brought together on every device; the tail then runs on all of them."""
    layers = context.layers
    start = tail_N[rows].astype(np.int64)
    live = np.where(start < len(layers.live_L), layers.live_L[np.minimum(start, len(layers.live_L)) - 1], 0.0)
    size = c.local_N[rows] * live * context.width
    parts = c.parts_N[rows]
    if context.profile.staged_bytes_per_s is not None:
        # Forward the parts of the others come, backward their gradients go, through the host's memory.
        return np.asarray(2 * size * (parts - 1) / parts / context.profile.staged_bytes_per_s)
    return collective_time_s(context.cluster, "all_gather", size, parts, 1.0)


def _product_s(context: LayeredContext, c: Candidates, mode: Mode, rows: np.ndarray) -> tuple[Floats, Floats]:
    """Filter: outputs are gathered, input gradients added up. Channel: outputs added up, input gradients gathered."""
    layers, parts = context.layers, c.parts_N[rows, None]
    counts = np.bincount(layers.kind_of_L, minlength=len(layers.distinct))
    weighted = [number for number, operator in enumerate(layers.distinct) if operator.kind in WEIGHTED]
    operators = [layers.distinct[number] for number in weighted]
    last = [number for number in layers.kind_of_L if layers.distinct[number].kind in WEIGHTED][-1]
    each, batch, ones = counts[weighted], c.local_N[rows, None], np.ones((len(rows), 1))
    output, inputs = (
        batch * context.width * np.array([float(getattr(operator, name)) for operator in operators])
        for name in ("output_elements", "input_elements")
    )
    share = context.profile.all_reduce_share
    # Nobody asks for the gradient of the data.
    behind = np.where([bool(operator.inputs) for operator in operators], each, 0)
    if mode is Mode.FILTER:
        forward = collective_time_s(context.cluster, "all_gather", output, parts, 1.0)
        backward = reduce_s(context.cluster, inputs, parts, ones, share)
        before = each - (np.array(weighted) == last)  # the last outputs stay apart: the loss takes them so
    else:
        forward = reduce_s(context.cluster, output, parts, ones, share)
        backward = (
            collective_time_s(context.cluster, "all_gather", inputs, parts, 1.0)
            if context.profile.gathers_channel_gradient
            else reduce_s(context.cluster, inputs, parts, ones, share)
        )
        before = behind  # the first layer stays whole
    seconds = (before * forward + behind * backward).sum(axis=1)
    return seconds, np.full(len(rows), float(np.sum(before + behind)))


def _mixed_s(context: LayeredContext, c: Candidates, rows: np.ndarray) -> Floats:
    """Linear layers by filter over all replicas: their inputs are gathered, the inputs' gradients scattered."""
    linear = [operator for operator in context.model.operators if operator.kind is Kind.LINEAR]
    elements = np.array([float(operator.input_elements) for operator in linear])
    ranks = c.replicas_N[rows, None]
    size = c.local_N[rows, None] * ranks * elements * context.width
    names: tuple[Collective, ...] = ("all_gather", "reduce_scatter")
    return np.asarray(sum(collective_time_s(context.cluster, name, size, ranks, 1.0).sum(axis=1) for name in names))


def _table_s(context: LayeredContext, c: Candidates, rows: np.ndarray) -> Floats:
    """Looked-up rows travel from the devices of their tables to those of their samples, and their gradients back."""
    width = sum(table.output_elements for table in context.model.tables)
    size = c.local_N[rows] * width * context.width
    return 2 * collective_time_s(context.cluster, "all_to_all", size, c.replicas_N[rows], 1.0)
