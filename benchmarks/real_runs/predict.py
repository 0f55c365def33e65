"""Predicts measured rows of ``data_parallel.py`` from its profile rows: one worker, and two workers' links."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes import (
    MODES,
    GradientLayer,
    GradientProfile,
    NicNetwork,
    TrainingMode,
    throughput_curve,
)

NOISE = 0.05


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measured step beside both predictions; ``profile``: the prediction was made from it."""

    model: str
    mode: str
    workers: int
    shards: int
    slow: float
    step_s: float
    low_s: float
    high_s: float
    events_s: float
    coarse_s: float
    profile: bool

    @property
    def error(self) -> float:
        """Of the event level, relative."""
        return self.events_s / self.step_s - 1

    @property
    def coarse_error(self) -> float:
        """Of the analytic model, relative."""
        return self.coarse_s / self.step_s - 1


def predictions(rows: Sequence[dict[str, str]]) -> list[Row]:
    """Return all rows with a step, predicted from those of one worker and the links."""
    found = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        profiles = {mode: _profile(own, mode) for mode in MODES}
        links = [row for row in rows if row["mode"] == "links"]
        networks = {mode: _network(links, "reduced" if mode == "all-reduce" else "sent") for mode in MODES}
        found += [_predict(row, profiles[row["mode"]], networks[row["mode"]]) for row in own if row["mode"] in MODES]
    return found


def _profile(rows: Sequence[dict[str, str]], mode: str) -> GradientProfile:
    """Return the passes of a worker alone; what its step takes besides is host time, a server's update its own."""
    alone = next(row for row in rows if row["mode"] == "all-reduce" and row["workers"] == "1")
    sizes, forward, backward = (json.loads(alone[key]) for key in ("stage_bytes", "forward_s", "backward_s"))
    # Of the rounds the quietest: what else the machine does only ever adds.
    rest_s = max(float(alone["step_s_low"]) - sum(forward) - sum(backward), 0.0)
    update_s = rest_s
    if mode != "all-reduce":
        served = next(row for row in rows if row["mode"] == mode and row["workers"] == "1")
        update_s = float(served["update_s"])
    return GradientProfile(
        name=alone["model"],
        layers=tuple(
            GradientLayer(name=f"stage {n}", parameter_bytes=size, forward_s=f, backward_s=b)
            for n, (size, f, b) in enumerate(zip(sizes, forward, backward, strict=True))
        ),
        batch=1,
        update_s=update_s,
        step_factors=tuple(json.loads(alone.get("step_factors") or "[]")),
    )


def _network(rows: Sequence[dict[str, str]], kind: str) -> NicNetwork:
    """Return what two workers see: the rate between the two longest messages, or all-reduces, whose time is
    2 (latency + size / (2 rate)), and the latency of the shortest."""
    times: dict[int, list[float]] = {}
    for row in rows:
        for size, time_s in json.loads(row[f"{kind}_s"]):
            times.setdefault(size, []).append(time_s)
    (short, fixed_s), *_, (low, low_s), (high, high_s) = sorted((size, min(found)) for size, found in times.items())
    rate = (high - low) / (high_s - low_s)
    latency_s = max(fixed_s - short / rate, 0.0) / 2
    return NicNetwork(worker_bytes_per_s=rate, server_bytes_per_s=rate, latency_s=latency_s)


def _predict(row: dict[str, str], profile: GradientProfile, network: NicNetwork) -> Row:
    exchange, synchronous = MODES[row["mode"]]
    workers, slow = int(row["workers"]), float(row["slow"])
    settings: dict[str, Any] = {"exchange": exchange, "synchronous": synchronous, "workers": workers}
    mode = TrainingMode(**settings, shards=int(row["shards"]), policy="fifo", bucket_bytes=1.0)
    noise = Disturbance(slow={workers - 1: slow}) if slow != 1 else None
    point = throughput_curve(profile, mode, network, (workers,), noise).points[0]
    assert point.events is not None and point.analytic is not None
    return Row(
        model=row["model"],
        mode=row["mode"],
        workers=workers,
        shards=int(row["shards"]),
        slow=slow,
        step_s=float(row["step_s"]),
        low_s=float(row["step_s_low"]),
        high_s=float(row["step_s_high"]),
        events_s=workers / point.events.samples_per_s,
        coarse_s=workers / point.analytic.samples_per_s,
        profile=workers == 1,
    )


def judged(rows: Sequence[Row]) -> dict[str, float]:
    """Return errors over all predicted rows, and the share of pairs of a model ordered right."""
    targets = [row for row in rows if not row.profile]
    pairs = [
        (one, other)
        for one, other in combinations(targets, 2)
        if one.model == other.model and abs(_speed(one) / _speed(other) - 1) > NOISE
    ]
    right = sum((_speed(a) > _speed(b)) == (a.workers / a.events_s > b.workers / b.events_s) for a, b in pairs)
    errors, analytic = (
        [abs(100 * e) for e in part] for part in zip(*((r.error, r.coarse_error) for r in targets), strict=True)
    )
    return {
        "median_pct": statistics.median(errors),
        "worst_pct": max(errors),
        "coarse_median_pct": statistics.median(analytic),
        "coarse_worst_pct": max(analytic),
        "pairs": len(pairs),
        "order_pct": 100 * right / max(len(pairs), 1),
    }


def _speed(row: Row) -> float:
    return row.workers / row.step_s
