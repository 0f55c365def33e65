"""Data-parallel steps of transformers for ``forerun scale``, from the core that every other verb asks."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.modes import ModePrediction


def core_steps(batch: int, training: Mapping[str, Any]) -> Callable[[int], ModePrediction]:
    """Return what the core says of any number of replicas of ``batch`` sequences; ``training``: the rest of a
    ``Request``."""
    return partial(_step, training, batch)


def _step(training: Mapping[str, Any], batch: int, workers: int) -> ModePrediction:
    """Return the step of so many replicas.

    Raises:
        RequestError: the cluster has fewer devices.
    """
    from forerun.search.api import simulate_setting

    asked = Request(**training, global_batch=workers * batch, gpus=str(workers))
    row = simulate_setting(resolve(asked), f"dp{workers} mbs{batch}")
    return ModePrediction(
        model="analytic",
        workers=workers,
        step_s=row.step_time_s,
        samples_per_s=workers * batch / row.step_time_s,
        parts_s={
            "compute": row.step_time_s - row.breakdown_s["data"] - row.breakdown_s["optimizer"],
            "exchange": row.breakdown_s["data"],
            "update": row.breakdown_s["optimizer"],
        },
        bound_samples_per_s=float("inf"),
    )
