"""Alignment of the clocks of hosts.

Every clock has an offset and, where the trace is long enough to show it, a drift. Members of a collective leave it
together, and a receive ends with its send, after a delay that is equal in both directions: offsets and drifts are
fitted to make these ends agree (least squares with Huber's weights, which limit the influence of late stamps). Two laws
must hold: no member leaves a collective before all have entered, and no message is received before it is sent. Laws
that the fit breaks are added as constraints (a quadratic programme, solved by Hildreth's method) until none is broken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.replay.matching import MatchedMessage
from forerun.simulator.replay.trace import Floats, Integers, RankTrace

_HUBER = 1.345
"""Ratio of residual to scale above which an observation loses weight (95 % efficient for normal noise; Huber 1981)."""
_FLOOR_S = 1e-6
"""Smallest scale of residuals: the step of profilers' clocks."""
_SLACK_S = 2e-6
"""Tolerance of laws in seconds: stamps are rounded."""
_ENOUGH = 100_000
"""Number of ends above which only every second, third, ... exchange is used: more do not improve the clocks."""
_MOST_DRIFT = 500e-6
"""Largest plausible drift: quartz clocks stay within 100 parts in a million of true time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """True time of rank place p: ``t + offset_s[p] + drift[p] * (t - middle_s)``, against the first host.

    ``hosts``: number of clocks; ``residual_s``: median distance of ends from their common end; ``broken``: number of
    exchanges that still break a law; ``unlinked``: number of hosts without an exchange with the first, which are not
    aligned.
    """

    offset_s: Floats
    drift: Floats
    middle_s: float
    hosts: int
    residual_s: float
    broken: int
    unlinked: int

    def aligned(self, place: int, time_s: Floats) -> Floats:
        """Return times of one rank on the common clock."""
        moved: Floats = time_s + self.offset_s[place] + self.drift[place] * (time_s - self.middle_s)
        return moved


def unaligned(count: int) -> Clocks:
    """Return clocks that change nothing."""
    zero = np.zeros(count)
    return Clocks(offset_s=zero, drift=zero, middle_s=0.0, hosts=1, residual_s=0.0, broken=0, unlinked=0)


def align(traces: Sequence[RankTrace], exchanges: Sequence[MatchedMessage]) -> Clocks:
    """Return the clocks of all ranks; ranks of one named host share a clock."""
    names = [trace.host or f"rank {trace.rank}" for trace in traces]
    clock = np.array([sorted(set(names), key=names.index).index(name) for name in names])
    count = int(clock.max()) + 1
    if count == 1:
        return unaligned(len(traces))
    seen = _observe(traces, exchanges, clock)
    if not len(seen.end_s):
        return replace(unaligned(len(traces)), hosts=count, unlinked=count - 1)
    if seen.side.any():
        seen = _waited(seen, count)
    fit = _fit(seen, count, drifts=False)
    if np.ptp(seen.end_s) > 0:
        longer = _fit(seen, count, drifts=True)
        free = len(seen.end_s) - len(np.unique(seen.exchange))
        gain = free * np.log(max(fit.cost, 1e-30) / max(longer.cost, 1e-30))
        # Bayesian information criterion: a drift must reduce the residuals enough.
        if gain > (count - 1) * np.log(max(free, 2)) and np.abs(longer.values[count - 1 : 2 * count - 2]).max() < (
            _MOST_DRIFT * seen.span_s
        ):
            fit = longer
    values, broken = _obey(fit, seen, count)
    offset, drift = np.zeros(count), np.zeros(count)
    offset[1:] = values[: count - 1]
    if fit.drifts:
        drift[1:] = values[count - 1 : 2 * count - 2] / seen.span_s
    left = fit.residuals(values, seen)
    return Clocks(
        offset_s=offset[clock],
        drift=drift[clock],
        middle_s=seen.middle_s,
        hosts=count,
        residual_s=float(np.median(np.abs(left))),
        broken=broken,
        unlinked=_unlinked(seen, count),
    )


@dataclass(slots=True, kw_only=True)
class _Seen:
    """One row per member of an exchange between clocks.

    ``exchange``: number, ascending; ``pair``: number of a send's two clocks as a pair (-1 for collectives and one-way
    traffic); ``side``: -1 for a send, +1 for its receive, 0 otherwise.
    """

    exchange: Integers
    clock: Integers
    start_s: Floats
    end_s: Floats
    side: Integers
    pair: Integers
    pairs: int
    span_s: float
    middle_s: float


def _observe(traces: Sequence[RankTrace], exchanges: Sequence[MatchedMessage], clock: Integers) -> _Seen:
    """Collect the ends of exchanges between hosts."""
    rows: list[tuple[int, int, float, float, int, int, int]] = []
    number = 0
    # Every k-th exchange, which keeps about _ENOUGH ends.
    for one in exchanges[:: max(sum(len(each.members) for each in exchanges) // _ENOUGH, 1)]:
        clocks = [int(clock[place]) for place, _ in one.members]
        paired = one.operation == "pair"
        if len(set(clocks)) < 2 or not (one.synchronising or (paired and len(one.members) == 2)):
            continue
        # The members of a collective end at one moment on any clock: side 0. The receive of a pair (member 1, side +1)
        # ends a delay after the send (member 0, side -1).
        for turn, (place, span) in enumerate(one.members):
            ends = (float(traces[place].start_s[span]), float(traces[place].end_s[span]))
            low, high = sorted(clocks)[0], sorted(clocks)[-1]
            rows.append((number, clocks[turn], *ends, (2 * turn - 1) * paired, *((low, high) if paired else (-1, -1))))
        number += 1
    table = np.array(rows, dtype=np.float64).reshape(-1, 7)
    exchange, rank, side = (table[:, place].astype(np.int64) for place in (0, 1, 4))
    pair = _two_way(table, rank, side)
    end_s = table[:, 3]
    span_s = float(np.ptp(end_s)) if len(end_s) else 0.0
    return _Seen(
        exchange=exchange,
        clock=rank,
        start_s=table[:, 2],
        end_s=end_s,
        side=side,
        pair=pair,
        pairs=int(pair.max(initial=-1)) + 1,
        span_s=span_s or 1.0,
        middle_s=float(end_s.min() + span_s / 2) if len(end_s) else 0.0,
    )


def _two_way(table: Floats, rank: Integers, side: Integers) -> Integers:
    """Number the pairs of clocks with messages in both directions, which separates delay from offset."""
    pair = np.full(len(table), -1, dtype=np.int64)
    senders: dict[tuple[int, int], set[int]] = {}
    for row in np.flatnonzero(side < 0):
        senders.setdefault((int(table[row, 5]), int(table[row, 6])), set()).add(int(rank[row]))
    both = {key: number for number, key in enumerate(sorted(key for key, ways in senders.items() if len(ways) == 2))}
    for row in np.flatnonzero(side):
        pair[row] = both.get((int(table[row, 5]), int(table[row, 6])), -1)
    return pair


def _waited(seen: _Seen, count: int) -> _Seen:
    """Drop receives that started after their send in a first fit: their end has no information about the sender."""
    for _ in range(3):
        fit = _fit(seen, count, drifts=False)
        clocks_only = fit.values.copy()
        clocks_only[len(clocks_only) - seen.pairs :] = 0.0
        start_s = seen.start_s + fit.design @ clocks_only
        sends, receives = np.flatnonzero(seen.side < 0), np.flatnonzero(seen.side > 0)
        idle = seen.exchange[receives[start_s[receives] > start_s[sends]]]
        kept = ~np.isin(seen.exchange, idle)
        if kept.all() or not kept.any():
            break
        number = np.unique(seen.exchange[kept], return_inverse=True)[1].astype(np.int64)
        fewer = {name: getattr(seen, name)[kept] for name in ("clock", "start_s", "end_s", "side", "pair")}
        if set(fewer["clock"].tolist()) != set(seen.clock.tolist()):
            break
        seen = replace(seen, exchange=number, **fewer)
    return seen


@dataclass(slots=True, kw_only=True)
class _Fit:
    """A fit. ``values``: offsets of clocks 1.., drifts times the span, delays of pairs; ``normal``: its matrix."""

    values: Floats
    normal: Floats
    cost: float
    drifts: bool
    design: Floats

    def residuals(self, values: Floats, seen: _Seen) -> Floats:
        """Return the distance of every end from the common end of its exchange."""
        return _centred(seen.end_s + self.design @ values, np.ones(len(seen.end_s)), seen.exchange)


def _centred(values: Floats, weights: Floats, group: Integers) -> Floats:
    """Return values [rows] or [rows, columns] minus the weighted mean of their group; groups are runs of rows."""
    edges = np.flatnonzero(np.diff(group, prepend=-1))
    spread = weights if values.ndim == 1 else weights[:, None]
    total = np.add.reduceat(spread, edges, axis=0)
    mean = np.add.reduceat(spread * values, edges, axis=0) / np.maximum(total, 1e-300)
    centred: Floats = values - np.repeat(mean, np.diff(np.append(edges, len(group))), axis=0)
    return centred


def _design(seen: _Seen, count: int, *, drifts: bool) -> Floats:
    """Return the coefficient of every unknown in every end: [rows, unknowns]."""
    rows, width = len(seen.end_s), count - 1
    design = np.zeros((rows, width * (2 if drifts else 1) + seen.pairs))
    moved = np.flatnonzero(seen.clock > 0)
    design[moved, seen.clock[moved] - 1] = 1.0
    if drifts:
        design[moved, width + seen.clock[moved] - 1] = (seen.end_s[moved] - seen.middle_s) / seen.span_s
    delayed = np.flatnonzero((seen.pair >= 0) & (seen.side > 0))
    if seen.pairs:
        design[delayed, design.shape[1] - seen.pairs + seen.pair[delayed]] = -1.0
    return design


def _fit(seen: _Seen, count: int, *, drifts: bool) -> _Fit:
    """Fit by least squares with weights from the residuals."""
    design = _design(seen, count, drifts=drifts)
    weights = np.ones(len(seen.end_s))
    values: Floats = np.zeros(design.shape[1])
    normal: Floats = np.eye(design.shape[1])
    cost = 0.0
    for _ in range(20):
        centred = _centred(design, weights, seen.exchange)
        target = _centred(seen.end_s, weights, seen.exchange)
        normal = centred.T @ (centred * weights[:, None])
        # A clock without a connection to the others keeps its time.
        ridge = 1e-9 * max(float(np.trace(normal)) / len(normal), 1e-9)
        matrix = normal + ridge * np.eye(len(normal))
        new: Floats = np.asarray(np.linalg.solve(matrix, -centred.T @ (weights * target)), dtype=np.float64)
        left = _centred(seen.end_s + design @ new, weights, seen.exchange)
        scale = max(1.4826 * float(np.median(np.abs(left))), _FLOOR_S)
        far = np.abs(left) / scale
        weights = np.where(far <= _HUBER, 1.0, _HUBER / np.maximum(far, 1e-12))
        cost = float(np.sum(weights * left**2))
        moved, values = float(np.max(np.abs(new - values))), new
        if moved < 1e-8:
            break
    return _Fit(values=values, normal=normal, cost=cost, drifts=drifts, design=design)


def _obey(fit: _Fit, seen: _Seen, count: int) -> tuple[Floats, int]:
    """Return the nearest values, in the metric of the fit, that obey all laws, and the number of violations."""
    laws: list[Floats] = []
    bounds: list[float] = []
    known: set[tuple[int, int]] = set()
    values = fit.values
    clocks_only = fit.design.copy()
    if seen.pairs:
        clocks_only[:, -seen.pairs :] = 0.0
    inverse: Floats = np.asarray(np.linalg.pinv(fit.normal), dtype=np.float64)
    broken = 0
    for _ in range(30):
        early, late, by_s = _broken(seen, clocks_only @ values)
        broken = len(by_s)
        fresh = [(a, b) for a, b in zip(early.tolist(), late.tolist(), strict=True) if (a, b) not in known]
        if not fresh:
            break
        # One law per pair of clocks and round, the most violated one; it often repairs others.
        worst: dict[tuple[int, int], tuple[float, int, int]] = {}
        for (a, b), much in zip(zip(early.tolist(), late.tolist(), strict=True), by_s.tolist(), strict=True):
            key = (int(seen.clock[a]), int(seen.clock[b]))
            worst[key] = max(worst.get(key, (0.0, a, b)), (much, a, b))
        for _, a, b in worst.values():
            if (a, b) not in known:
                known.add((a, b))
                laws.append(clocks_only[b] - clocks_only[a])
                bounds.append(float(seen.end_s[a] - seen.start_s[b]))
        values, settled = _hildreth(fit.values, inverse, np.array(laws), np.array(bounds))
        if not settled:  # the laws contradict each other, and more of them cannot help
            broken = len(_broken(seen, clocks_only @ values)[2])
            break
    return values, broken


def _broken(seen: _Seen, shift: Floats) -> tuple[Integers, Integers, Floats]:
    """Return, per exchange that breaks its law, the row that ends early, the row that starts late, and the excess."""
    none: Integers = np.empty(0, dtype=np.int64)
    if not len(seen.end_s):
        return none, none, np.empty(0)
    start, end = seen.start_s + shift, seen.end_s + shift
    # In a pair, only the start of the send and the end of the receive are bound.
    start = np.where(seen.side > 0, -np.inf, start)
    end = np.where(seen.side < 0, np.inf, end)
    edges = np.flatnonzero(np.diff(seen.exchange, prepend=-1))
    group = seen.exchange
    latest, earliest = np.maximum.reduceat(start, edges), np.minimum.reduceat(end, edges)
    wrong = np.flatnonzero(latest - earliest > _SLACK_S)
    early = [int(edges[one] + np.argmin(end[group == one])) for one in wrong]
    late = [int(edges[one] + np.argmax(start[group == one])) for one in wrong]
    return np.array(early, dtype=np.int64), np.array(late, dtype=np.int64), (latest - earliest)[wrong]


def _hildreth(values: Floats, inverse: Floats, laws: Floats, bounds: Floats) -> tuple[Floats, bool]:
    """Return the point nearest to ``values`` with ``laws @ x <= bounds``, and whether one exists.

    The metric is given by its ``inverse``.

    Multipliers are set in turn to satisfy their law, until none changes (Hildreth 1957).
    """
    ways = inverse @ laws.T
    strength = np.maximum(np.einsum("ij,ji->i", laws, ways), 1e-15)
    multipliers, point = np.zeros(len(bounds)), values.copy()
    for _ in range(2000):
        change = 0.0
        for law in range(len(bounds)):
            step = max((float(laws[law] @ point) - bounds[law]) / strength[law], -multipliers[law])
            if step:
                multipliers[law] += step
                point -= step * ways[:, law]
                change = max(change, abs(step) * strength[law])
        if change < 1e-9:
            return point, True
    return point, False


def _unlinked(seen: _Seen, count: int) -> int:
    """Return the number of clocks that no chain of exchanges connects to the first."""
    reached, grown = {0}, True
    groups: dict[int, set[int]] = {}
    for number, clock in zip(seen.exchange.tolist(), seen.clock.tolist(), strict=True):
        groups.setdefault(number, set()).add(clock)
    ties = {frozenset(group) for group in groups.values()}
    while grown:
        grown = False
        for tie in ties:
            if tie & reached and not tie <= reached:
                reached |= tie
                grown = True
    return count - len(reached)
