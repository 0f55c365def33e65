"""Pipelines of whole layers: where to cut, and what the slowest stage takes."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forerun.simulator.costs import point_to_point_time_s
from forerun.simulator.opgraph.candidates import Candidates
from forerun.simulator.opgraph.compute import Local
from forerun.simulator.opgraph.context import LayeredContext
from forerun.simulator.opgraph.layers import Floats
from forerun.simulator.opgraph.memory import kept_elements
from forerun.spaces.opgraph import Kind
from forerun.spaces.opgraph.split import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Per row, zero where there is no pipeline.

    ``forward_s``, ``backward_s``: all segments of the slowest stage; ``bubble_s``: filling and draining; ``hop_s``:
    transfers between stages; ``parameters_N`` (without tables), ``tables_N`` and ``kept_N`` (elements per sample) of
    the stages that hold most; ``starts`` by row: the first operator of every stage.
    """

    forward_s: Floats
    backward_s: Floats
    bubble_s: Floats
    hop_s: Floats
    parameters_N: Floats
    tables_N: Floats
    kept_N: Floats
    starts: dict[int, tuple[int, ...]]


def pipeline_stages(context: LayeredContext, c: Candidates) -> Stages:
    """Return the stages of every pipeline row: cut so that the slowest is as fast as it can be, segments one after the
    other as in GPipe (arXiv 1811.06965)."""
    columns = {
        name: np.zeros(len(c)) for name in ("forward", "backward", "bubble", "hop", "parameters", "tables", "kept")
    }
    starts: dict[int, tuple[int, ...]] = {}
    rows = np.flatnonzero(c.is_mode(Mode.PIPELINE))
    if rows.size:
        layers, host = context.layers, context.profile.operator_host_s
        everything, kept = layers.per_operator("parameters"), kept_elements(context)
        embedding = layers.is_kind(Kind.EMBEDDING)
        parameters, tables = np.where(embedding, 0.0, everything), np.where(embedding, everything, 0.0)
        segment = c.local_N[rows]
        times = context.times(Local.whole(segment))
        cuts: dict[tuple[float, int], tuple[int, ...]] = {}
        for place, row in enumerate(rows):
            parts = int(c.parts_N[row])
            forward = np.maximum(times.forward_KU[place][layers.kind_of_L], host)
            backward = np.maximum(times.backward_KU[place][layers.kind_of_L], host)
            key = (float(segment[place]), parts)
            if key not in cuts:
                cuts[key] = balanced_cuts(forward + backward, parts)
            begin = cuts[key]
            sums = [np.add.reduceat(values, begin) for values in (forward, backward, parameters, tables, kept)]
            slowest = int(np.argmax(sums[0] + sums[1]))
            each = float((sums[0] + sums[1])[slowest])
            count = float(c.segments_N[row])
            live = max((float(layers.live_L[first - 1]) for first in begin[1:]), default=0.0)
            hop = float(point_to_point_time_s(context.cluster, segment[place] * live * context.width, 1.0))
            columns["forward"][row] = count * float(sums[0][slowest])
            columns["backward"][row] = count * float(sums[1][slowest])
            columns["bubble"][row] = (len(begin) - 1) * each
            columns["hop"][row] = 2 * (len(begin) + count - 2) * hop
            for place_in, name in enumerate(("parameters", "tables", "kept"), start=2):
                columns[name][row] = float(sums[place_in].max())
            starts[int(row)] = begin
    return Stages(
        forward_s=columns["forward"],
        backward_s=columns["backward"],
        bubble_s=columns["bubble"],
        hop_s=columns["hop"],
        parameters_N=columns["parameters"],
        tables_N=columns["tables"],
        kept_N=columns["kept"],
        starts=starts,
    )


PRECISION = 1e-9
"""Share of the longest run to which the cuts are found."""


def balanced_cuts(seconds_L: Floats, parts: int) -> tuple[int, ...]:
    """Return the first operator of each of at most ``parts`` runs whose longest is as short as can be.

    Bisection over the longest run; each trial fills runs greedily.
    """
    total = [0.0, *map(float, np.cumsum(seconds_L))]
    low, high = float(seconds_L.max()), total[-1]
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if len(_filled(total, middle, parts)) <= parts:
            high = middle
        else:
            low = middle
    return _filled(total, high * (1 + 1e-12), parts)


def _filled(total: Sequence[float], longest_s: float, parts: int) -> tuple[int, ...]:
    """Return where runs begin that are filled up one after the other; gives up when there are more than ``parts``."""
    begin = 0
    starts: list[int] = []
    while begin < len(total) - 1 and len(starts) <= parts:
        starts.append(begin)
        end = bisect_right(total, total[begin] + longest_s) - 1
        begin = max(end, begin + 1)
    return tuple(starts)
