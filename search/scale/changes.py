"""Gains of a data-parallel training from single resources made twice as fast or large."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes import GradientProfile, ModeNetwork, TrainingMode, analytic_prediction, one_worker_step_s
from forerun.simulator.modes.mode import MOST_SHARDS

WORTH = 0.02
"""Smallest gain with which a change identifies the bottleneck of a run."""
EQUAL = "equal workers"
LIMITS = {"bandwidth": "the network", "compute": "compute", EQUAL: "stragglers"}
"""Bottleneck of a run by the change with the largest gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleChange:
    """A change and its gain: samples/s with over without the change, minus 1."""

    name: str
    samples_per_s: float
    gain: float

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return {"change": self.name, "samples_per_s": self.samples_per_s, "gain": self.gain}


def changes(
    profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, noise: Disturbance
) -> tuple[ScaleChange, ...]:
    """Return the gain of each change of a run in a ``mode``, by the analytic model, largest first."""
    workers = mode.workers
    now = _rate(profile, mode, network, noise)
    rates = [
        ("bandwidth", _rate(profile, mode, network.faster(2.0), noise)),
        ("compute", _rate(_times(profile, 0.5), mode, network, noise)),
        ("batch", _rate(replace(_times(profile, 2.0), batch=2 * profile.batch), mode, network, noise)),
    ]
    room = min(MOST_SHARDS, profile.total_bytes / 4, workers if mode.colocated else math.inf)
    if mode.exchange == "parameter-server" and mode.placement == "even" and 2 * mode.shards <= room:
        rates.append(("shards", _rate(profile, replace(mode, shards=2 * mode.shards), network, noise)))
    if noise.slow or noise.jitter or profile.step_factors:
        equal = replace(profile, step_factors=())
        rates.append((EQUAL, _rate(equal, mode, network, Disturbance())))
    made = [ScaleChange(name=name, samples_per_s=rate, gain=rate / now - 1) for name, rate in rates]
    return tuple(sorted(made, key=lambda change: -change.gain))


def limited_by(gains: Sequence[ScaleChange]) -> str | None:
    """Return the bottleneck of a run: the resource whose doubling gains most; None if no gain is large."""
    best = max((change for change in gains if change.name in LIMITS), key=lambda change: change.gain)
    return LIMITS[best.name] if best.gain >= WORTH else None


def _times(profile: GradientProfile, factor: float) -> GradientProfile:
    """Return the profile with passes and host ``factor`` times as long, and unchanged times of updates."""
    layers = tuple(
        replace(layer, forward_s=factor * layer.forward_s, backward_s=factor * layer.backward_s)
        for layer in profile.layers
    )
    return replace(profile, layers=layers, host_s=factor * profile.host_s)


def _rate(profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, noise: Disturbance) -> float:
    single_s = None
    if mode.exchange == "parameter-server" and mode.overlap:
        single_s = one_worker_step_s(profile, mode, network)
    return analytic_prediction(profile, mode, network, noise, one_worker_s=single_s).samples_per_s
