"""Throughput against workers by the analytic model, the event level or both, and their disagreement."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes.analytic import analytic_prediction
from forerun.simulator.modes.mode import TrainingMode
from forerun.simulator.modes.network import ModeNetwork
from forerun.simulator.modes.prediction import ModePrediction
from forerun.simulator.modes.profile import GradientProfile
from forerun.spaces.errors import RequestError

Fidelity = Literal["analytic", "events", "both"]

SATURATED = 0.95
"""Share of the best throughput from which a curve counts as saturated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The predictions of both models for one number of workers; None for a model that was not requested.

    ``exact``: the analytic model is complete and has the mean of the events' random draws, as for all-reduces that are
    not simulated round by round.
    """

    workers: int
    analytic: ModePrediction | None
    events: ModePrediction | None
    exact: bool = False

    @property
    def chosen(self) -> ModePrediction:
        """The finer of the requested answers."""
        prediction = (self.analytic or self.events) if self.exact else (self.events or self.analytic)
        assert prediction is not None
        return prediction

    @property
    def disagreement(self) -> float | None:
        """Analytic over event-level throughput, less one; None unless both were computed."""
        if self.analytic is None or self.events is None:
            return None
        return self.analytic.samples_per_s / self.events.samples_per_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Throughput against workers.

    ``alone_samples_per_s``: throughput of one worker without any exchange, the reference of efficiency.
    """

    points: tuple[CurvePoint, ...]
    alone_samples_per_s: float

    @property
    def best(self) -> CurvePoint:
        """The point of the highest throughput; the first of equal points."""
        return max(self.points, key=lambda point: point.chosen.samples_per_s)

    @property
    def saturation(self) -> CurvePoint:
        """The first point that reaches 95 % of the best throughput: more workers add almost nothing."""
        enough = SATURATED * self.best.chosen.samples_per_s
        return next(point for point in self.points if point.chosen.samples_per_s >= enough)

    @property
    def saturated(self) -> bool:
        """Whether the curve stops growing before its last point."""
        return self.saturation.workers < self.points[-1].workers

    def efficiency(self, point: CurvePoint) -> float:
        """Compute throughput per worker relative to one worker without any exchange."""
        return point.chosen.samples_per_s / point.workers / self.alone_samples_per_s

    def to_json(self) -> dict[str, Any]:
        """Return the curve as plain data."""
        return {
            "points": [
                {
                    **point.chosen.to_json(),
                    "model": point.chosen.model,
                    "efficiency": self.efficiency(point),
                    "analytic_samples_per_s": None if point.analytic is None else point.analytic.samples_per_s,
                    "events_samples_per_s": None if point.events is None else point.events.samples_per_s,
                    "disagreement": point.disagreement,
                }
                for point in self.points
            ],
            "saturation": {
                "workers": self.saturation.workers,
                "samples_per_s": self.saturation.chosen.samples_per_s,
                "reached": self.saturated,
            },
            "best": {"workers": self.best.workers, "samples_per_s": self.best.chosen.samples_per_s},
        }


def throughput_curve(
    profile: GradientProfile,
    mode: TrainingMode,
    network: ModeNetwork,
    workers: Sequence[int],
    disturbance: Disturbance | None = None,
    *,
    fidelity: Fidelity = "both",
    core: Callable[[int], ModePrediction] | None = None,
) -> Curve:
    """Predict the throughput for each number of workers.

    The number of workers of ``mode`` is ignored. Co-located shards never outnumber workers. ``core``: closed forms with
    more detail, in place of the analytic model.

    Raises:
        RequestError: no number is given, or the mode is not possible for one of them.
    """
    if not workers:
        raise RequestError("a curve needs one number of workers or more")
    one_worker_s = None
    if fidelity != "events" and mode.exchange == "parameter-server" and mode.overlap:
        one_worker_s = one_worker_step_s(profile, mode, network)
    points = []
    exact = mode.exchange == "all-reduce" and not network.ring
    for count in sorted(set(workers)):
        shards = min(mode.shards, count) if mode.colocated else mode.shards
        here = replace(mode, workers=count, shards=shards)
        analytic = events = None
        if fidelity != "events":
            analytic = (
                core(count)
                if core is not None
                else analytic_prediction(profile, here, network, disturbance, one_worker_s=one_worker_s)
            )
        if fidelity != "analytic":
            from forerun.simulator.modes.events import event_prediction

            events = event_prediction(profile, here, network, disturbance)
        points.append(CurvePoint(workers=count, analytic=analytic, events=events, exact=exact))
    alone_s = max(profile.step_s, profile.loading_s(1))
    return Curve(points=tuple(points), alone_samples_per_s=profile.batch / alone_s)


def one_worker_step_s(profile: GradientProfile, mode: TrainingMode, network: ModeNetwork) -> float:
    """Return the event-level step of one undisturbed worker with the mode's servers on other nodes."""
    from forerun.simulator.modes.events import event_prediction

    alone = replace(mode, workers=1, colocated=False, backup_workers=0)
    return event_prediction(replace(profile, step_factors=()), alone, network, steps=4).step_s
