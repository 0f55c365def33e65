"""Numbers of workers, settings of the gradient exchange and fidelity: their checks and defaults."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from forerun.simulator.modes import GradientProfile, ModeNetwork, TrainingMode
from forerun.simulator.modes.curve import Fidelity
from forerun.simulator.modes.events.build import RING_WORKERS
from forerun.simulator.modes.events.links import TURNS
from forerun.simulator.modes.events.measure import DRAWS, LAYERS, STEPS
from forerun.spaces.errors import RequestError


def check_used(exchange: str, given: Mapping[str, Any], server_bytes_per_s: float | None) -> None:
    """Check that all given settings belong to the requested exchange.

    Raises
    ------
    RequestError
        Servers are described without servers, or messages of an all-reduce without all-reduce.
    """
    if exchange != "all-reduce":
        if "bucket_bytes" in given:
            raise RequestError("--bucket is for all-reduces; servers take the gradient of each layer by itself")
        return
    usual = {"policy": "multiplexed", "placement": "even", "barrier": "step"}
    settings = [name for name, value in usual.items() if given.get(name, value) != value]
    settings += ["window"] * ("window_bytes" in given)
    settings += ["bandwidth"] * (server_bytes_per_s is not None)
    if settings:
        raise RequestError(
            f"--servers {','.join(settings)}: an all-reduce has no servers; add --mode sync-ps or async-ps"
        )


MOST_WORKERS = 4096


def worker_counts(text: str) -> list[int]:
    """Return the numbers of workers that ``8``, ``1,2,6`` or ``1..64`` (doubling, both ends) names.

    Raises
    ------
    RequestError
        Not such a text, or a number out of range.
    """
    low, dots, high = text.partition("..")
    try:
        if dots:
            first, last = int(low), int(high)
            counts = [first]
            while 0 < counts[-1] * 2 < last:
                counts.append(counts[-1] * 2)
            counts = [*counts, last] if last > first else [first, last]
            if last < first:
                raise RequestError(f"a range of workers grows, but got {text}; write {last}..{first}")
        else:
            counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise RequestError(f"workers are like 8, 1,2,6 or 1..64, but got {text!r}") from None
    for count in counts:
        if not 1 <= count <= MOST_WORKERS:
            raise RequestError(f"workers are 1 to {MOST_WORKERS}, but got {count}")
    return sorted(set(counts))


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

    Raises
    ------
    RequestError
        Events are requested, and their number exceeds ``MOST_TASKS``.
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
