"""Number of events of a curve's runs, with a limit for the default and one for requests of the event level."""

from collections.abc import Sequence
from dataclasses import replace

from forerun.simulator.modes import GradientProfile, ModeNetwork, TrainingMode
from forerun.simulator.modes.curve import Fidelity
from forerun.simulator.modes.events.build import RING_WORKERS
from forerun.simulator.modes.events.links import TURNS
from forerun.simulator.modes.events.measure import DRAWS, LAYERS, STEPS
from forerun.spaces.errors import RequestError

SOON = {"all-reduce": 200_000, "parameter-server": 600_000}
"""Most tasks of all runs of a curve for which the event level is the default: two to four seconds. Rings and buckets
are near their closed forms, servers are not."""
MOST_TASKS = 4_000_000
"""Most tasks of all runs: half a minute."""


def fidelity_of(
    asked: Fidelity | None,
    profile: GradientProfile,
    mode: TrainingMode,
    network: ModeNetwork,
    workers: Sequence[int],
    defaults: list[str],
) -> Fidelity:
    """Return the requested fidelity, else both if events take only seconds; ``defaults`` records the default.

    Raises:
        RequestError: events are requested, and their number exceeds ``MOST_TASKS``.
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
    """Estimate the number of event-level tasks of a mode."""
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
