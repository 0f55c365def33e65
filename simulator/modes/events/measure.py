"""Run the graph of a training mode and read its throughput, its parts and its staleness."""

import bisect
import math
from dataclasses import replace

from forerun.simulator.events.engine.engine import Execution, execute
from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes.analytic import analytic_prediction
from forerun.simulator.modes.events.build import ModeGraph, build_mode
from forerun.simulator.modes.mode import TrainingMode
from forerun.simulator.modes.network import ModeNetwork
from forerun.simulator.modes.prediction import ModePrediction
from forerun.simulator.modes.profile import GradientProfile

STEPS = 24
"""Simulated steps; the first quarter leads into the steady state and is not counted."""
DRAWS = 4
"""Number of averaged runs of asynchronous workers. Accidental synchronisation differs from run to run, as in
measurements (benchmarks/results/2026-11-21-real-runs.md)."""
LAYERS = 24
"""Limit of layers in a profile; more change little and cost events."""

_REST = "exchange, queue and update"


def event_prediction(
    profile: GradientProfile,
    mode: TrainingMode,
    network: ModeNetwork,
    disturbance: Disturbance | None = None,
    *,
    steps: int = STEPS,
    draws: int = DRAWS,
) -> ModePrediction:
    """Return the throughput of a mode from its events, the mean of ``draws`` runs for asynchronous workers.

    Every transfer and pass is an event; above ``LAYERS`` layers, neighbours are joined (for an all-reduce, layers of
    one bucket).

    Raises:
        RequestError: a slow worker does not exist, or shards outnumber the layers or parameters to place on them.
    """
    if mode.exchange == "all-reduce":
        small = profile.merged_at([bucket[-1] for bucket in mode.buckets(profile)], mode.workers)
    else:
        small = profile.merged(LAYERS)
    noise = disturbance or Disturbance()
    bound = analytic_prediction(profile, mode, network, disturbance).bound_samples_per_s
    predictions = []
    for number in range(1 if mode.synchronous or mode.workers == 1 else draws):
        made = build_mode(small, mode, network, replace(noise, seed=noise.seed + number), steps)
        read = _synchronous if mode.synchronous else _asynchronous
        predictions.append(read(small, mode, made, execute(made.graph), bound))
    return _mean(predictions).no_faster_than(profile.loading_s(mode.workers))


def _mean(runs: list[ModePrediction]) -> ModePrediction:
    """Return the mean of runs with different random draws: throughput, step time and its parts."""
    first, count = runs[0], len(runs)
    if count == 1:
        return first
    rate = math.fsum(run.samples_per_s for run in runs) / count
    step_s = first.step_s * first.samples_per_s / rate
    compute_s = math.fsum(run.parts_s["compute"] for run in runs) / count
    stale, worst = (
        math.fsum(value for run in runs if (value := getattr(run, name)) is not None) / count
        for name in ("staleness", "staleness_worst")
    )
    return replace(
        first,
        step_s=step_s,
        samples_per_s=rate,
        parts_s={"compute": compute_s, _REST: step_s - compute_s},
        staleness=stale,
        staleness_worst=worst,
    )


def _synchronous(
    profile: GradientProfile, mode: TrainingMode, made: ModeGraph, run: Execution, bound: float
) -> ModePrediction:
    ends = [max(run.end_s[task] for task in row) for row in made.last]
    skip = len(ends) // 4
    steps = len(ends) - skip
    step_s = (ends[-1] - (ends[skip - 1] if skip else 0.0)) / steps
    slowest_s = sum(
        max(time_s for time_s, kept in zip(row, counted, strict=True) if kept)
        for row, counted in zip(made.compute_s[skip:], made.counted[skip:], strict=True)
    )
    straggler_wait_s = slowest_s / steps - profile.compute_s
    counted = sum(sum(row) for row in made.counted[skip:]) / steps
    return ModePrediction(
        model="events",
        workers=mode.workers,
        step_s=step_s,
        samples_per_s=counted * profile.batch / step_s,
        parts_s={
            "compute": profile.compute_s,
            "straggler wait": straggler_wait_s,
            "exchange and update": step_s - profile.compute_s - straggler_wait_s,
        },
        bound_samples_per_s=bound,
    )


def _asynchronous(
    profile: GradientProfile, mode: TrainingMode, made: ModeGraph, run: Execution, bound: float
) -> ModePrediction:
    """Count the steps that all workers complete between two instants of their common steady state."""
    workers = range(mode.workers)
    ends = [[run.end_s[row[worker]] for row in made.last] for worker in workers]
    starts = [[run.start_s[row[worker]] for row in made.first] for worker in workers]
    stop_s = min(row[-1] for row in ends)
    begin_s = stop_s / 4
    done = [_completed(row, begin_s, stop_s) for row in ends]
    rate = sum(done) / (stop_s - begin_s)
    cycle_s = mode.workers / rate
    everything = sorted(end_s for row in ends for end_s in row)
    stale = [_staleness(everything, starts[w], ends[w], begin_s, stop_s) for w in workers]
    all_stale = [value for row in stale for value in row]
    compute = [
        made.compute_s[step][w] for w in workers for step in range(len(made.last)) if begin_s < ends[w][step] <= stop_s
    ]
    compute_s = sum(compute) / len(compute)
    return ModePrediction(
        model="events",
        workers=mode.workers,
        step_s=cycle_s,
        samples_per_s=rate * profile.batch,
        parts_s={"compute": compute_s, _REST: cycle_s - compute_s},
        bound_samples_per_s=bound,
        staleness=sum(all_stale) / len(all_stale),
        staleness_worst=max(sum(row) / len(row) for row in stale if row),
    )


def _completed(ends: list[float], begin_s: float, stop_s: float) -> float:
    """Return the number of steps that a worker completes between two instants, including fractions of running steps."""

    def position(now_s: float) -> float:
        place = bisect.bisect_right(ends, now_s)
        if place == len(ends):
            return float(place)
        before = ends[place - 1] if place else 0.0
        return place + (now_s - before) / (ends[place] - before)

    return position(stop_s) - position(begin_s)


def _staleness(
    everything: list[float], starts: list[float], ends: list[float], begin_s: float, stop_s: float
) -> list[int]:
    """Return, for each step that ends between two instants, the updates of other workers since its fetch began."""
    delays = []
    for start, end in zip(starts, ends, strict=True):
        if begin_s < end <= stop_s:
            # Its own update is among the updates up to the end; updates at the instant of the fetch are part of the
            # fetch.
            delays.append(bisect.bisect_right(everything, end) - bisect.bisect_right(everything, start) - 1)
    return delays
