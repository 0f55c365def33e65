"""Number of events of the runs of a curve: above some the event level is no default, above more it is refused."""

from collections.abc import Sequence
from dataclasses import replace

from forerun.simulator.modes import GradientProfile, ModeNetwork, TrainingMode
from forerun.simulator.modes.curve import Fidelity
from forerun.simulator.modes.events.build import RING_WORKERS
from forerun.simulator.modes.events.links import TURNS
from forerun.simulator.modes.events.measure import DRAWS, LAYERS, STEPS
from forerun.spaces.errors import RequestError

SOON = {"all-reduce": 200_000, "parameter-server": 600_000}
"""Tasks of all runs of a curve up to which the event level is the default: some two and four seconds. Rings and buckets
are near their closed forms, servers are not."""
MOST_TASKS = 4_000_000
"""Tasks of all runs that are made at all: half a minute."""


def fidelity_of(
    asked: Fidelity | None,
    profile: GradientProfile,
    mode: TrainingMode,
    network: ModeNetwork,
    workers: Sequence[int],
    defaults: list[str],
) -> Fidelity:
    """Return the fidelity that is asked for, else both where the events of a curve take seconds; ``defaults`` takes
    what was filled in.

    Raises:
        RequestError: events are asked for, and would be more than ``MOST_TASKS``.
    """
    tasks = sum(event_tasks(profile, replace(mode, workers=count), network) for count in set(workers))
    if asked is not None:
        if asked != "analytic" and tasks > MOST_TASKS:
            raise RequestError(
                f"{tasks:,} events are more than the {MOST_TASKS:,} of half a minute; "
                f"name fewer --workers, larger --bucket, or --fidelity analytic"
            )
        return asked
    if tasks <= SOON[mode.exchange]:
        return "both"
    defaults.append(f"fidelity analytic (event level: {tasks:,} events)")
    return "analytic"


def event_tasks(profile: GradientProfile, mode: TrainingMode, network: ModeNetwork) -> int:
    """Return about how many tasks the event level makes of a mode."""
    if mode.exchange == "all-reduce":
        buckets = len(mode.buckets(profile)) if mode.workers > 1 else 0
        ring = network.ring and mode.workers <= RING_WORKERS
        sent = buckets * (2 * (mode.workers - 1) * mode.workers if ring else 1)
        return STEPS * (sent + mode.workers * (2 * (buckets + 1) + 2))
    shards = min(mode.shards, mode.workers) if mode.colocated else mode.shards
    pooled = mode.placement == "even" and not mode.colocated
    parts = (1 if pooled else shards) * (TURNS if mode.policy == "multiplexed" else 1)
    layers = min(len(profile.layers), LAYERS)
    return STEPS * layers * mode.workers * 2 * (1 + parts) * (1 if mode.synchronous else DRAWS)
