"""Communication inside a replica: halos, gathered and summed outputs, features of a mixed split, looked-up rows."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from forerun.simulator.costs import Collective, collective_time_s
from forerun.simulator.layouts.price import sent_s
from forerun.simulator.opgraph.candidates import SplitCandidates
from forerun.simulator.opgraph.context import GraphContext
from forerun.simulator.opgraph.dealing import fullest_tables
from forerun.simulator.opgraph.groups import halo_ways, padded_grid, part_strides, per_shape
from forerun.simulator.opgraph.layers import AXES, Floats, added
from forerun.simulator.opgraph.messages import reduce_s
from forerun.simulator.opgraph.shared_ports import at_pace, simultaneous_pace
from forerun.spaces.opgraph import WEIGHTED, GraphModel, Kind
from forerun.spaces.opgraph.limits import tail_start
from forerun.spaces.opgraph.split import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Communication of N rows in seconds per step.

    ``halo_s``: between neighbours in space; ``collective_s``: per layer; ``tail_s``: gather of the parts of an image;
    ``back_NL``: part of all of it in the backward pass of one segment, by operator. ``calls_N``: number of collectives;
    ``pieces_N``: number of joined or cut pieces, which cost host time.
    """

    halo_s: Floats
    collective_s: Floats
    tail_s: Floats
    back_NL: Floats
    calls_N: Floats
    pieces_N: Floats


def tails(context: GraphContext, candidates: SplitCandidates) -> Floats:
    """Index of the first operator without a spatial split, per row; the number of operators in other modes."""
    count = float(len(context.model.operators))
    tail_of: dict[tuple[int, ...], float] = {}
    starts = np.full(len(candidates), count)
    for row in np.flatnonzero(candidates.is_mode(Mode.SPATIAL)):
        grid = candidates.splits[row].grid
        if grid not in tail_of:
            tail_of[grid] = float(tail_start(context.model, grid))
        starts[row] = tail_of[grid]
    return starts


def exchanges(context: GraphContext, candidates: SplitCandidates, tail_N: Floats) -> Exchange:
    """Return the communication of every row; ``tail_N``: operator at which a spatial split is gathered."""
    zeros = np.zeros(len(candidates))
    halo, collective, tail, calls, pieces = (zeros.copy() for _ in range(5))
    operators = context.model.operators
    backward_NL = np.zeros((len(candidates), len(operators)))
    rows = np.flatnonzero(candidates.is_mode(Mode.SPATIAL) & (candidates.parts_N > 1))
    if rows.size:
        halo[rows], backward_NL[rows], calls[rows] = _halo_s(context, candidates, tail_N, rows)
        tail[rows] = _tail_s(context, candidates, tail_N, rows)
        calls[rows] += 1.0
        pieces[rows] += context.directions * candidates.parts_N[rows]
    for mode in (Mode.FILTER, Mode.CHANNEL):
        rows = np.flatnonzero(candidates.is_mode(mode) & (candidates.parts_N > 1))
        if rows.size:
            forward, backward_NL[rows], calls[rows] = _product_s(context, candidates, mode, rows)
            collective[rows] = forward + added(backward_NL[rows])
            pieces[rows] = calls[rows] * candidates.parts_N[rows] if mode is Mode.FILTER else 0.0
    rows = np.flatnonzero(candidates.mixed_N & (candidates.replicas_N > 1))
    if rows.size:
        inputs, outputs = _mixed_borders(context.model)
        forward, backward = _mixed_s(context, candidates, rows, inputs, outputs)
        backward = backward * (context.directions - 1.0)
        collective[rows] += added(forward + backward)
        # The gather of a linear layer's input is in its forward pass; the backward pass has the gather and the rest.
        linear = [place for place, o in enumerate(operators) if o.kind is Kind.LINEAR and o.inputs]
        backward_NL[rows[:, None], linear] += backward
        calls[rows] += context.directions * (len(inputs) + len(outputs))
        pieces[rows] += context.directions * len(inputs) * candidates.replicas_N[rows]
    rows = np.flatnonzero(candidates.spread_N & (candidates.replicas_N > 1))
    if rows.size:
        looked_up = _table_s(context, candidates, rows)
        collective[rows] += context.directions * looked_up
        tables = [place for place, o in enumerate(operators) if o.kind is Kind.EMBEDDING]
        backward_NL[rows, tables[-1]] += looked_up * (context.directions - 1.0)
        calls[rows] += context.directions
    times = candidates.segments_N
    return Exchange(
        halo_s=times * halo,
        collective_s=times * collective,
        tail_s=times * tail,
        back_NL=backward_NL,
        calls_N=times * calls,
        pieces_N=times * pieces,
    )


def _halo_s(
    context: GraphContext, c: SplitCandidates, tail_N: Floats, rows: np.ndarray
) -> tuple[Floats, Floats, Floats]:
    """Exchange of pixel rows with both neighbours: of the input before a pass and of its gradient after it.

    For the device that sends most, one message after the other. Returns seconds, seconds of the backward pass by
    operator, and calls.
    """
    layers = context.layers
    before_tail = np.arange(len(layers.kind_of_L)) < tail_N[rows, None]
    times_RU = np.stack(
        [np.bincount(layers.kind_of_L[operators], minlength=len(layers.distinct)) for operators in before_tail]
    )
    one_RU = _neighbours_s(context, c, rows)
    # Inputs before the pass; after it the neighbours' part of their gradients, which the data does not need.
    directions_U = np.array([context.directions if operator.inputs else 1.0 for operator in layers.distinct])
    seconds = added(directions_U * times_RU * one_RU)
    backward_RL = before_tail * (one_RU * (directions_U - 1.0))[:, layers.kind_of_L]
    return seconds, backward_RL, added(np.where(one_RU > 0, directions_U * times_RU, 0.0))


def _neighbours_s(context: GraphContext, c: SplitCandidates, rows: np.ndarray) -> Floats:
    """Seconds in which the busiest device sends to its neighbours for each distinct operator, of shape [rows, U]."""
    layers, cluster, staged = context.layers, context.cluster, context.profile.staged_bytes_per_s
    windows = np.flatnonzero(layers.halo_UA.any(axis=1))
    sizes_RAU = _border_bytes(context, c, rows)[:, :, windows]
    ways_of_rows = [halo_ways(cluster.levels, c.splits[row].replicas, padded_grid(c.splits[row])) for row in rows]
    sent = [
        (place, number, *way, *messages)
        for number, (place, pattern) in enumerate(
            (place, one) for place, ways in enumerate(ways_of_rows) for one in ways
        )
        for way, messages in pattern
    ]
    table = np.array(sent, dtype=np.float64).reshape(-1, 4 + AXES)
    row_M, pattern_M = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
    size_MU = np.einsum("ma,mau->mu", table[:, 4:], sizes_RAU[row_M])
    if staged is not None:
        took_MU = 2 * size_MU / staged  # sent, then received
    else:
        took_MU = np.where(size_MU > 0, sent_s(cluster, size_MU, table[:, 2:3], table[:, 3:4]), 0.0)
    patterns = np.zeros((sum(map(len, ways_of_rows)), len(windows)))
    np.add.at(patterns, pattern_M, took_MU)
    slowest = np.zeros((len(rows), len(windows)))
    np.maximum.at(slowest, np.repeat(np.arange(len(rows)), [len(ways) for ways in ways_of_rows]), patterns)
    seconds = np.zeros((len(rows), len(layers.distinct)))
    seconds[:, windows] = slowest
    return seconds


def _border_bytes(context: GraphContext, c: SplitCandidates, rows: np.ndarray) -> Floats:
    """Bytes of the pixel rows at one border along every axis, of shape [rows, AXES, U]."""
    layers, grid = context.layers, c.grid_NA[rows]
    own_RUA = np.ceil(layers.input_UA / grid[:, None, :])
    channels = np.array([float(operator.input[0]) for operator in layers.distinct])
    sizes = []
    for axis in range(AXES):
        others = [other for other in range(AXES) if other != axis]
        sizes.append(channels * layers.halo_UA[:, axis] * own_RUA[:, :, others].prod(axis=2))
    return np.asarray(np.stack(sizes, axis=1) * (c.local_N[rows] * context.width)[:, None, None], dtype=np.float64)


def _tail_s(context: GraphContext, c: SplitCandidates, tail_N: Floats, rows: np.ndarray) -> Floats:
    """Seconds to gather the input of the tail, which runs in full on every device."""
    # Devices store only their parts: inputs of a convolution are gathered again for its backward pass.
    starts, which = np.unique(tail_N[rows].astype(np.int64), return_inverse=True)
    reads = [_tail_reads(context.model, int(start)) for start in starts]
    forward, repeated = np.zeros((2, len(rows), max(map(len, reads))))
    for number, sizes in enumerate(reads):
        for read, (elements, again) in enumerate(sizes):
            forward[which == number, read], repeated[which == number, read] = elements, elements * again
    size, parts = c.local_N[rows, None] * context.width, c.parts_N[rows, None]
    if context.profile.staged_bytes_per_s is not None:
        # The forward pass receives the parts of the others, the backward pass sends their gradients, through host
        # memory.
        others = added(size * forward) * ((parts - 1) / parts)[:, 0]
        return np.asarray(context.directions * others / context.profile.staged_bytes_per_s)
    stride = part_strides(context.cluster.levels, c)[rows, None]
    seconds = collective_time_s(context.cluster, "all_gather", size * forward, parts, stride)
    backward = np.where(repeated > 0, seconds, 0.0) * (context.directions - 1.0)
    return added(np.where(forward > 0, seconds, 0.0) + backward)


@lru_cache(maxsize=256)
def _tail_reads(model: GraphModel, start: int) -> tuple[tuple[float, bool], ...]:
    """Return the elements per sample of every output that operators from ``start`` on read from earlier ones, and
    whether a product reads it.
    """
    size = {operator.name: float(operator.output_elements) for operator in model.operators[:start]}
    tail = model.operators[start:]
    read = dict.fromkeys(name for operator in tail for name in operator.inputs if name in size)
    repeated = {name for operator in tail if operator.macs for name in operator.inputs}
    return tuple((size[name], name in repeated) for name in read)


def _product_s(
    context: GraphContext, c: SplitCandidates, mode: Mode, rows: np.ndarray
) -> tuple[Floats, Floats, Floats]:
    """Return seconds forward, backward by operator, and calls."""
    # Filter split: outputs gathered, input gradients summed. Channel split: outputs summed, input gradients gathered.
    layers, parts = context.layers, c.parts_N[rows, None]
    counts = np.bincount(layers.kind_of_L, minlength=len(layers.distinct))
    weighted = [number for number, operator in enumerate(layers.distinct) if operator.kind in WEIGHTED]
    operators = [layers.distinct[number] for number in weighted]
    each, batch, stride = counts[weighted], c.local_N[rows, None], part_strides(context.cluster.levels, c)[rows, None]
    output, inputs = (
        batch * context.width * np.array([float(getattr(operator, name)) for operator in operators])
        for name in ("output_elements", "input_elements")
    )
    share = context.profile.all_reduce_share
    pace = per_shape(c.take(rows), lambda *shape: simultaneous_pace(context.cluster, *shape, across=False))[:, None]

    def gathered(size: Floats) -> Floats:
        return at_pace(pace, *collective_time_s(context.cluster, "all_gather", np.stack([size, one]), parts, stride))

    def added_up(size: Floats) -> Floats:
        return at_pace(pace, *reduce_s(context.cluster, np.stack([size, one]), parts, stride, share))

    one = np.ones_like(output)
    # The data needs no gradient; contributions of several layers to one gradient are summed before they are sent.
    readers = {
        operator.inputs: number
        for number, operator in reversed([*enumerate(context.model.operators)])
        if operator.kind in WEIGHTED and operator.inputs
    }
    places = list(readers.values())
    backward_calls = np.bincount(layers.kind_of_L[places], minlength=len(layers.distinct))[weighted]
    if mode is Mode.FILTER:
        forward, backward = gathered(output), added_up(inputs)
        # A layer with fewer filters than parts is not split, and an output without readers is not gathered.
        cut = np.array([float(operator.filters) for operator in operators]) >= parts
        wanted = {name for operator in context.model.operators for name in operator.inputs}
        asked = [
            number for o, number in zip(context.model.operators, layers.kind_of_L, strict=True) if o.name in wanted
        ]
        before, backward_calls = (
            cut * np.bincount(asked, minlength=len(layers.distinct))[weighted],
            cut * backward_calls,
        )
    else:
        forward = added_up(output)
        backward = (gathered if context.profile.gathers_channel_gradient else added_up)(inputs)
        before = np.where([bool(operator.inputs) for operator in operators], each, 0)  # the first layer is not split
    backward_calls = np.where(context.inference, 0, backward_calls)
    calls = np.broadcast_to(before + backward_calls, output.shape).sum(axis=1)
    backward_RL = np.zeros((len(rows), len(layers.kind_of_L)))
    backward_RL[:, places] = ((backward_calls > 0) * backward)[:, np.searchsorted(weighted, layers.kind_of_L[places])]
    return added(before * forward), backward_RL, calls


def _mixed_borders(model: GraphModel) -> tuple[list[int], list[int]]:
    """Elements per sample of the inputs of linear layers, and of the outputs of a run of them."""
    # The model's input is not counted: it is loaded onto the devices that read it.
    inputs = [o.input_elements for o in model.operators if o.kind is Kind.LINEAR and o.inputs]
    read = {name for o in model.operators if o.name not in model.linear_runs for name in o.inputs}
    return inputs, [o.output_elements for o in model.operators if o.name in model.linear_runs and o.name in read]


def _mixed_s(
    context: GraphContext, c: SplitCandidates, rows: np.ndarray, inputs: list[int], outputs: list[int]
) -> tuple[Floats, Floats]:
    """Seconds forward and backward of each linear layer that reads another, split by filter over all replicas."""
    # Samples are split, so inputs are gathered for each pass and their gradients scattered; the output of the run is
    # sent to the devices of its samples, and its gradient back.
    ranks, local = c.replicas_N[rows, None], c.local_N[rows, None] * context.width

    def seconds(kind: Collective, elements: list[int], size: Floats) -> Floats:
        return collective_time_s(context.cluster, kind, size * np.array(elements, dtype=np.float64), ranks, 1.0)

    gathered = seconds("all_gather", inputs, local * ranks)
    scattered = seconds("reduce_scatter", inputs, local * ranks)
    dealt = np.where(np.array(outputs) < ranks, 0.0, seconds("all_to_all", outputs, local))
    each = added(dealt)[:, None] / max(len(inputs), 1)
    return gathered + each, gathered + scattered + each


def _table_s(context: GraphContext, c: SplitCandidates, rows: np.ndarray) -> Floats:
    """Seconds per direction of the exchange of looked-up rows between devices of tables and devices of samples."""
    # All wait for the device with most tables, which sends the rows of every sample.
    replicas = c.replicas_N[rows]
    most = [sum(t.output_elements for t in fullest_tables(context.model, int(count))) for count in replicas]
    size = c.local_N[rows] * replicas * np.array(most, dtype=np.float64) * context.width
    return collective_time_s(context.cluster, "all_to_all", size, replicas, 1.0)
