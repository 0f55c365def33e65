"""Waits of an interleaved pipeline with unequal virtual stages: the longest path through its schedule, by content.

Devices of an interleaved pipeline wait for each other in every round, so a step takes longer than the slowest device's
passes where virtual stages differ. The sequence of passes on the longest path depends on the layers of each virtual
stage and hardly on the duration of a layer. The schedule is therefore simulated once per plan with nominal times, and
the path is stored as a number of passes for each content of a virtual stage. Any path through the schedule is a lower
bound of the step, whatever the times; the longest path by nominal times is close to the longest one. A path over three
groups of microbatches returns to the same pass one group later; for longer steps this part is repeated, so that their
paths also are paths through the schedule."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.score_table import Floats
from forerun.spaces.schedules.contract import PipelineShape
from forerun.spaces.schedules.interleaved import numbered

RATES = (
    ("work", 2.0, 0.0, 0.0),
    ("work", 2.0, 1.0, 1.0),
    ("work", 3.0, 0.125, 0.25),
    ("traffic", 1.75, 0.125, 0.0),
    ("launches", 2.0, 1.0, 0.25),
)
"""Nominal times of the search for paths. The numbers are times of layers (matrix work; with expert traffic and a head
in higher precision; or equal launches of the host for all), the ratio of the backward to the forward pass (three with
full recompute), the host time per microbatch and device, and that of a transfer, both in forward passes of the longest
layer."""
SLOWED = 2.0
"""Nominal factor on a mixture layer slowed by its traffic, and on a head in a model of 8-bit layers."""
STEPS = 64
"""Nominal duration of the longest layer's forward pass, in units of time."""
PLAYED = (1, 2, 3)
"""Simulated groups of pp microbatches. The path of more groups repeats a turn of the last one."""
AT_ONCE = 1 << 20
"""Passes simulated at once, some hundred bytes each."""
Path = NDArray[np.int64]
"""Passes from the end of a step to its start."""


@dataclass(frozen=True, slots=True)
class InterleavedPaths:
    """Longest paths of P plans."""

    passes: Floats
    """Number of passes of each content of a virtual stage on the path, forward and backward. Shape [rates, simulated
    groups and one repetition, 2, contents, P]."""
    held: Floats
    """Blocks of each content: [contents, kinds of block, P]."""
    prepared: Floats
    """Number of microbatches prepared by the host on the path: [rates, simulated groups and one repetition, P]."""
    transfers: Floats
    """Number of transfers between devices on the path, likewise."""
    idle: Floats
    """Idle time of the first device while the pipeline fills and drains, relative to its forward and backward passes of
    a microbatch (``_Step.idle``): [2, P]."""

    def columns(self, plans: NDArray[np.intp]) -> "InterleavedPaths":
        """Return the paths of some plans, possibly repeated."""
        return InterleavedPaths(
            self.passes[..., plans],
            self.held[..., plans],
            self.prepared[..., plans],
            self.transfers[..., plans],
            self.idle[:, plans],
        )


Plan = tuple[tuple[tuple[float, ...], ...], int]
"""Blocks of every kind on every virtual stage, in model order, layers before embedding and head; and pp."""


def interleaved_paths(
    plans: Sequence[Plan], work: Sequence[float], slowed: Sequence[bool], ahead: int = 0
) -> list[InterleavedPaths]:
    """Find the longest paths of some plans.

    ``work``: work of one block of each kind, in any unit; ``slowed``: kinds that take longer than their work suggests;
    ``ahead``: see ``PipelineShape``.
    """
    # Integers, so that equally long paths are equal in any order of summation.
    units = {
        "work": np.round(STEPS * np.asarray(work) / max(work[:-2])),
        "traffic": np.round(STEPS * np.asarray(work) / max(work[:-2]) * np.where(slowed, SLOWED, 1.0)),
        "launches": np.array([*(float(STEPS),) * (len(work) - 2), 0.0, 0.0]),
    }
    backward = np.array([[back] for _, back, _, _ in RATES])
    prepares, sends = (np.array([rate[place] * STEPS for rate in RATES]) for place in (2, 3))
    found = []
    for batch in _batches(plans):
        steps = []
        for blocks, pp in batch:
            forward = np.stack([np.asarray(blocks) @ units[kind] for kind, _, _, _ in RATES])
            takes = np.concatenate([forward, forward * backward], axis=1)
            steps += [_Step(pp, groups * pp, takes, prepares, sends, ahead) for groups in PLAYED]
        paths, idle = _longest(steps)
        for place, (blocks, _) in enumerate(batch):
            columns = slice(place * len(PLAYED), (place + 1) * len(PLAYED))
            found.append(_counted(blocks, steps[columns], paths[columns], idle[columns][-1]))
    return found


def _batches(plans: Sequence[Plan]) -> Iterator[list[Plan]]:
    """Yield the plans in batches whose passes fit into little memory."""
    batch: list[Plan] = []
    passes = 0
    for plan in plans:
        tasks = sum(2 * groups * plan[1] * len(plan[0]) for groups in PLAYED)
        if batch and passes + tasks > AT_ONCE:
            yield batch
            batch, passes = [], 0
        batch.append(plan)
        passes += tasks
    if batch:
        yield batch


def _counted(
    blocks: Sequence[tuple[float, ...]], steps: Sequence["_Step"], paths: Sequence[list[Path]], idle: Floats
) -> InterleavedPaths:
    """Return the path of each step of a plan, by rate, as numbers of passes; ``idle``: see ``InterleavedPaths``."""
    contents = list(dict.fromkeys(blocks))
    of_chunk = np.array([contents.index(held) for held in blocks])
    passes = np.zeros((len(RATES), len(PLAYED) + 1, 2, len(contents), 1))
    prepared, transfers = np.zeros((2, len(RATES), len(PLAYED) + 1, 1))
    for rate in range(len(RATES)):
        own = [(step, path[rate]) for step, path in zip(steps, paths, strict=True)]
        own.append((steps[-1], steps[-1].turn(paths[-1][rate], rate)))
        for place, (step, path) in enumerate(own):
            back, chunk = np.divmod(path // step.microbatches, len(blocks))
            counts = np.bincount(back * len(contents) + of_chunk[chunk], minlength=2 * len(contents))
            passes[rate, place, :, :, 0] = counts.reshape(2, -1)
            prepared[rate, place] = step.prepared(path).sum()
            transfers[rate, place] = step.received(path).sum()
    return InterleavedPaths(passes, np.asarray(contents)[:, :, None], prepared, transfers, idle[:, None])


def packed(paths: Mapping[int, InterleavedPaths], plans: int, kinds: int) -> InterleavedPaths:
    """Return the paths of ``plans`` plans; unnamed plans have no passes."""
    most = max((len(one.held) for one in paths.values()), default=0)
    passes = np.zeros((len(RATES), len(PLAYED) + 1, 2, most, plans))
    held = np.zeros((most, kinds, plans))
    prepared, transfers = np.zeros((2, len(RATES), len(PLAYED) + 1, plans))
    idle = np.zeros((2, plans))
    for column, one in paths.items():
        prepared[..., column], transfers[..., column] = one.prepared[..., 0], one.transfers[..., 0]
        passes[..., : len(one.held), column] = one.passes[..., 0]
        held[: len(one.held), :, column] = one.held[..., 0]
        idle[:, column] = one.idle[:, 0]
    return InterleavedPaths(passes, held, prepared, transfers, idle)


def path_seconds(
    paths: InterleavedPaths, forward_s: Floats, backward_s: Floats, prepares_s: float, groups: Floats
) -> tuple[Floats, Floats]:
    """Return the seconds of paths through S steps without transfers, and their transfers, [rates, S].

    ``forward_s``, ``backward_s``: passes of one virtual stage of each content [contents, S]; ``prepares_s``: host time
    per microbatch and device; ``groups``: groups of pp microbatches [S].
    """
    # A path is a number of passes n_c of each content c, so its length sum_c (n_c,forward f_c + n_c,backward b_c) is
    # linear in the seconds of passes: the counts are known per plan, the seconds per candidate. L(1), L(2), L(3) are
    # the lengths of the paths over one, two and three groups of pp microbatches; from three on each group adds a turn
    # T, the part of the path that returns to its own pass one group later: L(g) = L(3) + (g - 3) T. Between integers it
    # is interpolated linearly, and the number of transfers likewise.
    played = prepares_s * paths.prepared
    for content in range(len(forward_s)):
        passes = paths.passes[:, :, :, content]
        played = played + passes[:, :, 0] * forward_s[content] + passes[:, :, 1] * backward_s[content]
    return _extended(played, groups), _extended(paths.transfers, groups)


def _extended(played: Floats, groups: Floats) -> Floats:
    """Extend figures of one, two and three groups and of one repetition, [rates, 4, S], to ``groups``."""
    one, two, three, turn = (played[:, place] for place in range(len(PLAYED) + 1))
    few = np.where(groups < PLAYED[1], one + (groups - 1) * (two - one), two + (groups - 2) * (three - two))
    return np.where(groups < PLAYED[2], few, three + (groups - 3) * turn)


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of few microbatches.

    ``takes`` [rates, twice the virtual stages]: forward passes, followed by backward ones; ``prepares`` [rates]: host
    time before the first forward pass of a microbatch on a device; ``sends`` [rates]: transfer between devices;
    ``ahead``: see ``PipelineShape``.
    """

    pp: int
    microbatches: int
    takes: Floats
    prepares: Floats
    sends: Floats
    ahead: int

    @property
    def chunks(self) -> int:
        """Number of virtual stages."""
        return len(self.takes[0]) // 2

    @property
    def passes(self) -> int:
        """Number of passes on all devices, in the numbering of ``numbered``."""
        return 2 * self.chunks * self.microbatches

    def programs(self) -> list[NDArray[np.int64]]:
        """Return the passes of every device in Megatron-LM's interleaved order."""
        vpp = self.chunks // self.pp
        shape = PipelineShape(pp=self.pp, vpp=vpp, microbatches=self.microbatches, ahead=self.ahead)
        return [numbered(shape, stage) for stage in range(self.pp)]

    def needs(self) -> NDArray[np.int64]:
        """Return the pass that computes the input of every pass (-1: none).

        The input comes from the same microbatch one virtual stage earlier, or later in the backward direction.
        """
        one, turned = self.microbatches, self.chunks * self.microbatches
        needed = np.arange(self.passes)
        needed[:turned] -= one
        needed[turned : 2 * turned - one] += one
        needed[2 * turned - one :] -= turned
        return np.maximum(needed, -1)

    def prepared(self, path: Path) -> NDArray[np.bool_]:
        """Mark the passes of a path that wait for the host's preparation of their microbatch, not for their input.

        Waiting passes are first forward passes on a device that follow another pass of the device.
        """
        chunk = path // self.microbatches
        device = chunk % self.chunks % self.pp
        prepared: NDArray[np.bool_] = (chunk < self.pp) & (np.append(device[1:], 0) == device)
        return prepared

    def received(self, path: Path) -> NDArray[np.bool_]:
        """Mark the passes of a path that wait for a transfer from the device of the preceding one.

        A step starts and ends on the same device, as does a repetition.
        """
        device = path // self.microbatches % self.pp
        return np.asarray(np.roll(device, -1) != device)

    def idle(self, ends: Floats) -> Floats:
        """Return the idle time of the first device before and after its last virtual stage runs.

        The times are relative to the device's forward and backward passes of a microbatch. ``ends``: end of every pass
        by the first rate.
        """
        forward, backward = self.takes[0].reshape(2, -1)[:, :: self.pp]
        last = self.chunks - self.pp
        fills = ends[last * self.microbatches] - forward[-1]
        drains = ends.max() - ends[(self.chunks + last + 1) * self.microbatches - 1]
        return np.maximum(
            [
                (fills - self.pp * forward[:-1].sum()) / forward.sum(),
                (drains - self.pp * backward[:-1].sum()) / backward.sum(),
            ],
            0.0,
        )

    def turn(self, path: Path, rate: int) -> Path:
        """Return the longest part of a path that ends where it started, one group of microbatches later.

        Of equally long parts it is the latest. Without such a part, it is a device's own passes of a group.
        """
        place = np.full(self.passes, -1)
        place[path] = np.arange(len(path))
        again = np.flatnonzero(path % self.microbatches >= self.pp)
        ends = place[path[again] - self.pp]
        takes = self.takes[rate, path // self.microbatches] + self.prepares[rate] * self.prepared(path)
        takes = takes + self.sends[rate] * self.received(path)
        length = np.concatenate([[0.0], np.cumsum(takes)])
        # Shares of embedding and head are not integers: lengths that differ by rounding are equal.
        lengths = np.where(ends >= 0, np.round(length[ends] - length[again], 6), 0.0)
        if len(again) and lengths.max() > 0:
            longest = int(np.argmax(lengths))
            return path[again[longest] : ends[longest]]
        device = int(np.argmax([self.takes[rate, one :: self.pp].sum() for one in range(self.pp)]))
        own = np.arange(device, 2 * self.chunks, self.pp) * self.microbatches
        return np.add.outer(own, np.arange(self.pp)).ravel()[::-1]


def _longest(steps: Sequence[_Step]) -> tuple[list[list[Path]], list[Floats]]:
    """Return the passes of the longest path of every step by rate, from its end to its start, and ``_Step.idle``.

    Of two equally long paths, the one that stays on the device.
    """
    # All devices of all steps run one pass at a time, once the pass with its input has run, so both ends before a pass
    # are known: it ends at max(end of the preceding pass on its device, end of the pass with its input) + its own time.
    # The later of the two is stored for each pass, and the path is read backwards from the pass that ends last.
    first = np.cumsum([0, *(step.passes for step in steps)])
    start, never = first[-1], first[-1] + 1  # passes that all others may wait for, and that none ever does
    programs = [np.append(own + low, never) for step, low in zip(steps, first, strict=False) for own in step.programs()]
    needs = [
        np.where(own < 0, start, own + low)
        for own, low in ((s.needs(), low) for s, low in zip(steps, first, strict=False))
    ]
    program, need = np.concatenate(programs), np.concatenate([*needs, [never, never]])
    wanted = need[program]
    takes = np.concatenate([np.repeat(step.takes.T, step.microbatches, axis=0) for step in steps])
    prepares, sends = np.zeros((2, never + 1, len(RATES)))
    for step, low in zip(steps, first, strict=False):
        prepares[low : low + step.pp * step.microbatches] = step.prepares
        turned = low + step.chunks * step.microbatches
        sends[low + step.microbatches : turned] = sends[turned : turned + turned - low - step.microbatches] = step.sends
    ends, stays = np.zeros((never + 1, len(RATES))), np.zeros((never + 1, len(RATES)), dtype=bool)
    ran, when = np.zeros(never + 1, dtype=bool), np.zeros(never + 1, dtype=np.int64)
    before = np.zeros_like(when)
    ran[start] = True
    at = np.cumsum([0, *map(len, programs[:-1])])
    latest, turn = np.full(len(programs), start), 0
    while True:
        waits = wanted.take(at)
        ready = np.flatnonzero(ran.take(waits))
        if not len(ready):
            break
        place, last, needed = at.take(ready), latest.take(ready), waits.take(ready)
        this = program.take(place)
        other = ends.take(needed, axis=0) + sends.take(this, axis=0)
        own = ends.take(last, axis=0) + prepares.take(this, axis=0)
        stays[this] = own >= other
        ends[this] = np.maximum(own, other) + takes.take(this, axis=0)
        ran[this], when[this], before[this] = True, turn, last
        latest[ready], at[ready] = this, place + 1
        turn += 1
    behind, paths, idle = np.where(stays.T, before, need), [], []
    for step, low in zip(steps, first, strict=False):
        passes = slice(low, low + step.passes)
        idle.append(step.idle(ends[passes, 0]))
        ended = [low + _last(each, when[passes]) for each in ends[passes].T]
        paths.append([_read_back(each, end, start) - low for each, end in zip(behind, ended, strict=True)])
    return paths, idle


def _last(ends: Floats, when: NDArray[np.int64]) -> int:
    """Return the pass that ends last; of several, the one that runs first."""
    latest = np.flatnonzero(ends == ends.max())
    return int(latest[np.argmin(when[latest])])


def _read_back(before: NDArray[np.int64], last: int, start: int) -> Path:
    """Return the passes from the last to the first."""
    path = []
    while last != start:
        path.append(last)
        last = int(before[last])
    return np.array(path)
