"""Goodput of a long training: failures, checkpoints, lost work, restarts and spare nodes.

A job of many devices stops when any of them fails. The job restarts from its last checkpoint, so a checkpoint interval
trades the time of writing against the work lost by a failure. Failures are independent and memoryless while the job
runs; under these assumptions the expected time of a training is exact (J. T. Daly, A higher order estimate of the
optimum checkpoint interval for restart dumps, Future Generation Computer Systems 22, 2006, equation 20, where restarts
fail as well; published logs count interruptions of a running job, and a failed restart as a long one):

    time = useful * (M + recovery) / interval * (exp((interval + write) / M) - 1)

with M the mean running time between failures of the whole job. The minimum over the interval is M * (1 + W(-exp(-1 -
write/M))) with W the Lambert function; for write << M that is Young's sqrt(2 * write * M).
"""

import math
from dataclasses import dataclass

from forerun.spaces.errors import RequestError

SECONDS_PER_HOUR = 3600.0


_RANGES: dict[str, tuple[float, float]] = {
    "failures_per_device_hour": (0, 1e3),
    "planned_per_device_hour": (0, 1e3),
    "recovery_s": (0, 1e8),
    "checkpoint_bytes_per_s": (1, 1e18),
    "interval_s": (1e-3, 1e8),
    "spare_nodes": (0, 1e7),
    "repair_s": (0, 1e8),
    "hardware_share": (0, 1),
}
"""Smallest and largest value of every field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Failure rates of devices and the recovery time of a job. Defaults are those of large published runs."""

    failures_per_device_hour: float = 2.0e-5
    """Interruptions of the job per device and hour of running. Llama 3 405B: 419 unexpected ones on 16,384 H100 in 54
    days, 2e-5 (The Llama 3 Herd of Models, section 3.3.4)."""

    planned_per_device_hour: float = 0.0
    """Planned interruptions per device and hour, which lose no work but restart. Llama 3: 47 in 54 days, 2.2e-6."""

    recovery_s: float = 600.0
    """Seconds from a failure to the first step after it: detection, replacement of the node, start-up, loading.
    MegaScale has ten minutes for detection and diagnosis (NSDI 2024, section 4)."""

    checkpoint_bytes_per_s: float = 1.0e9
    """Bytes per second that one node writes to storage. Llama 3: 2 TB/s sustained for 2,048 nodes."""

    interval_s: float | None = None
    """Seconds of training between two checkpoints; None: the optimum."""

    spare_nodes: int | None = None
    """Nodes reserved to replace failed ones; None: a replacement is always available."""

    repair_s: float = 24 * SECONDS_PER_HOUR
    """Seconds until a failed node returns; used only with a given number of spare nodes."""

    hardware_share: float = 0.78
    """Share of failures that need another node. Llama 3: 78 % of unexpected interruptions were hardware."""

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise RequestError(f"{name} must be between {low:g} and {high:g}, but got {value:.6g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The goodput of a training and the shares of lost time.

    The shares sum with ``effective`` to 1 and divide the effective time by cause.
    """

    effective: float
    """Useful time over total time, 0 to 1."""

    interval_s: float | None
    """Seconds of training between two checkpoints; None without failures, where no checkpoint is needed."""

    write_s: float
    """Seconds for which one checkpoint stops the training."""

    between_failures_s: float | None
    """Mean running seconds of the whole job between two unplanned interruptions; None without failures."""

    shares: dict[str, float]
    """Shares of the total time: ``checkpoints``, ``lost_work``, ``recovery``, ``waiting_for_nodes``."""

    @property
    def slowdown(self) -> float:
        """Total time over useful time."""
        return 1 / self.effective


def goodput_of(
    reliability: Reliability, *, devices: int, devices_per_node: int, checkpoint_bytes: float, step_s: float
) -> Goodput:
    """Compute the goodput of a training on ``devices`` devices in nodes of ``devices_per_node``.

    ``checkpoint_bytes``: weights and optimizer states of the whole job. ``step_s``: seconds of one step, the shortest
    checkpoint interval.

    Raises:
        RequestError: failures are so frequent that the job does not reach its next checkpoint.
    """
    nodes = math.ceil(devices / devices_per_node)
    write_s = checkpoint_bytes / (nodes * reliability.checkpoint_bytes_per_s)
    rate_per_s = devices * reliability.failures_per_device_hour / SECONDS_PER_HOUR
    planned_share = devices * reliability.planned_per_device_hour / SECONDS_PER_HOUR * reliability.recovery_s
    if rate_per_s == 0:
        return _without_failures(reliability, write_s=write_s, step_s=step_s, planned_share=planned_share)
    mean_s = 1 / rate_per_s
    interval_s = reliability.interval_s or max(best_interval_s(write_s=write_s, mean_s=mean_s), step_s)
    recovery = reliability.recovery_s / mean_s
    if (interval_s + write_s) / mean_s > _HOPELESS:
        raise RequestError(
            f"{devices} devices fail every {mean_s:.0f} s, but a checkpoint interval with its write takes "
            f"{interval_s + write_s:.0f} s; the training does not progress"
        )
    running = mean_s / interval_s * math.expm1((interval_s + write_s) / mean_s)
    total = running * (1 + recovery) + planned_share
    # Time without a replacement node is additional: the share of time with more nodes in repair than spares.
    down = _short_of_nodes(reliability, failures_per_s=rate_per_s)
    if down > 1 - 1e-9:
        raise RequestError(
            f"{reliability.spare_nodes} spare nodes never suffice where {devices} devices fail every {mean_s:.0f} s; "
            "the training does not progress"
        )
    total /= 1 - down
    writes = write_s / interval_s
    return Goodput(
        effective=1 / total,
        interval_s=interval_s,
        write_s=write_s,
        between_failures_s=mean_s,
        shares={
            "checkpoints": writes / total,
            "lost_work": (running - 1 - writes) / total,
            "recovery": (running * recovery + planned_share) / total,
            "waiting_for_nodes": down,
        },
    )


_HOPELESS = 20.0
"""Longest interval, in mean times between failures: fewer than one in 10^8 longer ones is completed."""

_NEAR_BRANCH = 1e-5
"""Write time, relative to the time between failures, below which the series is exact to 1e-7."""


def best_interval_s(*, write_s: float, mean_s: float) -> float:
    """Return the seconds between checkpoints that minimise the expected time.

    ``write_s``: seconds of one checkpoint. ``mean_s``: mean seconds between failures of the job.
    """
    from scipy.special import lambertw  # only needed by a search with goodput

    write = write_s / mean_s
    if write < _NEAR_BRANCH:  # W = -1 + p - p^2 / 3 + ... at its branch point, where rounding loses the argument
        p = math.sqrt(-2 * math.expm1(-write))
        return mean_s * (p - p * p / 3)
    return float(mean_s * (1 + lambertw(-math.exp(-1 - write)).real))


def _without_failures(reliability: Reliability, *, write_s: float, step_s: float, planned_share: float) -> Goodput:
    # Only the user asks for a checkpoint.
    interval_s = reliability.interval_s
    writes = 0.0 if interval_s is None else write_s / max(interval_s, step_s)
    total = 1 + writes + planned_share
    return Goodput(
        effective=1 / total,
        interval_s=interval_s,
        write_s=write_s,
        between_failures_s=None,
        shares={
            "checkpoints": writes / total,
            "lost_work": 0.0,
            "recovery": planned_share / total,
            "waiting_for_nodes": 0.0,
        },
    )


def _short_of_nodes(reliability: Reliability, *, failures_per_s: float) -> float:
    """Return the share of time with more nodes in repair than spares."""
    # Nodes in repair are Poisson distributed (M/G/infinity queue). Failures are assumed to continue while the job
    # waits, so the share is an upper bound.
    if reliability.spare_nodes is None:
        return 0.0
    from scipy.stats import poisson

    in_repair = failures_per_s * reliability.hardware_share * reliability.repair_s
    return float(poisson.sf(reliability.spare_nodes, in_repair))
