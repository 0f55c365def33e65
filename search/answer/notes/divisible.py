"""Notes on a nearby batch or number of GPUs that divides better, and on a restriction that leads to a launch file."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import Row
from forerun.search.formats.launchable import launchable
from forerun.search.formats.registry import writers_of
from forerun.search.request.setting import Setting
from forerun.spaces.errors import ForerunError, RequestError
from forerun.spaces.strategies import ALL_REPLICAS, AXES, DEGREES, SPELLING, Schedule, table_of

STARTABLE = "with a launch file:"
"""First words of the note."""
LAUNCH_AXES = ("split", "switches")
"""Further free axes: switches that overlap communication may need virtual stages."""
_PLAIN: tuple[Mapping[str, Sequence[object]], ...] = (
    {"split": ["even"]},
    {"vpp": [1], "schedule": ["1f1b"]},
    {"vpp": [1], "schedule": ["1f1b"], "split": ["even"]},
)
"""Restrictions to strategies that most formats can express."""


def startable_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the fastest launchable strategy near the rows, and the flags of its search.

    There is no note if a row has a launch file, or the framework has no format.
    """
    first, chosen = rows[0], setting.request.overrides
    if setting.context.cluster.groups or not writers_of(setting.context.framework):
        return ()
    if not all(row.lacks_launch_file for row in rows):
        return ()
    starts: list[tuple[float, str, Row]] = []
    for plain in _PLAIN:
        if plain.keys() & chosen.keys():
            continue
        try:
            row = search.best(
                setting, overrides={**narrowed(setting, rows, LAUNCH_AXES), **plain}, limits=setting.limits
            )
        except RequestError:  # the framework has no such choice
            continue
        if row is not None and launchable(setting.context, row.strategy):
            flags = " ".join(f"--set {axis}={values[0]}" for axis, values in plain.items())
            starts.append((row.gpus * row.step_time_s, flags, row))
    if not starts:
        return ()
    device_s, flags, row = min(starts, key=lambda one: one[:2])
    more = device_s / (first.gpus * first.step_time_s) - 1
    return (
        f"{STARTABLE} {flags} leads to {row.name} on {row.gpus} GPUs, {row.oom_risk:.0%} OOM risk "
        f"({row.peak_memory_gib:.1f} GiB), {more:+.1%} GPU time against row 1",
    )


BADLY = (" divides badly over ", " GPUs divide badly; ")
"""Words of the notes on a better batch and on a better number of GPUs."""
NEARBY = 0.15
"""Largest relative difference of the other batch or number of GPUs."""
WORTH = 0.05
"""Least gain in tokens per second and GPU for a note: above the prediction error between neighbours."""
MOST = 4
"""Most alternatives searched, nearest first: each takes the time of a small search."""
OBJECTIVES = ("throughput", "cost")
FREE = ("mbs", "recompute")
"""Axes that stay free: the choices that fit in a device's memory depend on the batch."""
PLAIN = {"vpp": 1, "schedule": 0, "split": 0, "recompute_layers": 0}
"""Choices that are always searched: they are legal with every number of stages."""


def divisible_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return notes on the gains of a nearby batch and number of GPUs that divide better; none for small gains.

    ``rows`` are in rank order.
    """
    if setting.objective not in OBJECTIVES or setting.context.cluster.groups:
        return ()
    first, batch = rows[0], setting.context.workload.global_batch
    narrow = narrowed(setting, rows)
    batches = {n: _with_batch(setting, n) for n in better_batches(batch, first.gpus)}
    notes = _note(first, narrow, batches, f"global batch {batch}{BADLY[0]}{first.gpus} GPUs; {{}} gives", search)
    if setting.gpus is not None and len(setting.gpus) == 1:
        cluster = setting.context.cluster
        counts = better_counts(batch, first.gpus, cluster.devices_per_node, cluster.max_devices)
        others = {n: dataclasses.replace(setting, gpus=(n,)) for n in counts}
        notes += _note(first, narrow, others, f"{first.gpus}{BADLY[1]}{{}} GPUs give", search)
    return notes


def better_batches(batch: int, gpus: int) -> list[int]:
    """Return nearby batches divisible by more divisors of ``gpus`` or powers of two, nearest first.

    >>> better_batches(256, 72), better_batches(97, 16), better_batches(512, 64)
    ([252, 264, 270, 288], [96, 98, 100, 104], [])
    """
    common = math.gcd(batch, gpus)
    # Divisors of ``gpus`` repeat with their own period, so the nearest batch of each kind is within it.
    low = max(1, math.ceil(batch * (1 - NEARBY)), batch - gpus)
    near = range(low, min(int(batch * (1 + NEARBY)), batch + gpus) + 1)
    better = [n for n in near if math.gcd(n, gpus) > common]
    return _most_common(better, batch, lambda n: math.gcd(n, gpus))


def better_counts(batch: int, gpus: int, node: int, largest: int) -> list[int]:
    """Return nearby numbers of GPUs with better divisibility, nearest first.

    They are whole nodes of ``node`` up to ``largest``; a batch divides more evenly over their replicas, or more powers
    of two divide them.

    >>> better_counts(256, 72, 4, 576), better_counts(256, 64, 8, 512), better_counts(1000, 1000, 8, 16384)
    ([64, 80], [], [992, 1024, 960, 896])
    """
    near = range(math.ceil(gpus * (1 - NEARBY) / node) * node, min(largest, int(gpus * (1 + NEARBY))) + 1, node)
    left = gpus // math.gcd(batch, gpus)
    better = [n for n in near if n and n // math.gcd(batch, n) < left]
    rounder = [n for n in near if n and n & -n > gpus & -gpus]
    counts = {*_most_common(better, gpus, lambda n: -(n // math.gcd(batch, n)))}
    counts |= {*_most_common(rounder, gpus, lambda n: n & -n)}
    return sorted(counts, key=lambda n: (abs(n - gpus), n))


def _most_common(numbers: Iterable[int], present: int, rank: Callable[[int], int]) -> list[int]:
    """Return the number nearest to the ``present`` one of each of the highest ranks, nearest first."""
    nearest: dict[int, int] = {}
    for number in sorted(numbers, key=lambda n: (abs(n - present), n)):
        nearest.setdefault(rank(number), number)
    best = [nearest[key] for key in sorted(nearest, reverse=True)[:MOST]]
    return sorted(best, key=lambda n: (abs(n - present), n))


def narrowed(setting: Setting, rows: Sequence[Row], free: Sequence[str] = ()) -> dict[str, Sequence[object]]:
    """Return the user's restrictions with all axes except degrees and ``free`` ones set to the choices of the rows.

    The result is a small space for any request.
    """
    seen = table_of([row.strategy for row in rows])
    choices, overrides = setting.space().choices, dict(setting.request.overrides)
    # If no number of stages divides the microbatches, no row is interleaved; rows of another batch may be.
    plain = seen.column("vpp").max() == 1 and seen.column("pp").max() > 1
    for axis in AXES[len(DEGREES) :]:
        if axis in (*FREE, *free) or (plain and axis == "vpp"):
            continue
        values = {*seen.column(axis).tolist()} | ({PLAIN[axis]} if axis in PLAIN else set())
        if plain and axis == "schedule":
            values.add(int(Schedule.INTERLEAVED))
        overrides[axis] = [_word(axis, value) for value in sorted(values & set(choices[axis]))]
    return overrides


def _word(axis: str, value: int) -> object:
    """Return the text of a choice."""
    if axis == "shard" and value == ALL_REPLICAS:
        return "all"
    return SPELLING[axis][value] if axis in SPELLING else value


def _with_batch(setting: Setting, batch: int) -> Setting:
    workload = dataclasses.replace(setting.context.workload, global_batch=batch)
    return dataclasses.replace(setting, context=dataclasses.replace(setting.context, workload=workload))


def _note(
    first: Row, narrow: Mapping[str, Sequence[object]], others: Mapping[int, Setting], text: str, search: NoteSearch
) -> tuple[str, ...]:
    """Return a note on the gain of the best of other settings over the first row; none for a small gain."""
    best: tuple[float, int, Row] | None = None
    for number, setting in others.items():
        least = (1 + (WORTH if best is None else best[0])) * first.throughput_per_gpu
        device_s = setting.context.workload.tokens_per_step / least
        try:
            row = search.best(setting, overrides=narrow, limits=setting.limits, device_s=device_s)
        except ForerunError:
            continue
        gain = 0.0 if row is None else row.throughput_per_gpu / first.throughput_per_gpu - 1
        if row is not None and gain >= WORTH and (best is None or gain > best[0]):
            best = gain, number, row
    if best is None:
        return ()
    gain, number, row = best
    in_all = row.gpus * row.throughput_per_gpu / (first.gpus * first.throughput_per_gpu) - 1
    in_total = f" and {in_all:.0%} more in all" if row.gpus < first.gpus and in_all >= WORTH else ""
    return (f"{text.format(number)} {gain:.0%} more tokens/s/GPU{in_total} ({row.name})",)
