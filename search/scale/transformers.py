"""Data-parallel steps of transformers for ``forerun scale``, by the cost model of all other verbs."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import legal_strategy, of_transformer
from forerun.simulator import score
from forerun.simulator.modes import ModePrediction
from forerun.spaces.strategies import table_of


def core_steps(batch: int, training: Mapping[str, Any]) -> Callable[[int], ModePrediction]:
    """Return the function that predicts the step of any number of replicas.

    Parameters
    ----------
    batch
        Sequences of a replica.
    training
        Other fields of a ``Request``.
    """
    return partial(_step, training, batch)


def _step(training: Mapping[str, Any], batch: int, workers: int) -> ModePrediction:
    """Predict the step of some replicas."""
    setting = of_transformer(resolve(Request(**training, global_batch=workers * batch, gpus=str(workers))))
    scores = score(setting.context, table_of([legal_strategy(setting, f"dp{workers} mbs{batch}")]))
    step_s, part_s = float(scores.step_time_s[0]), {name: float(time_s[0]) for name, time_s in scores.time_s.items()}
    return ModePrediction(
        model="analytic",
        workers=workers,
        step_s=step_s,
        samples_per_s=workers * batch / step_s,
        parts_s={
            "compute": step_s - part_s["data"] - part_s["optimizer"],
            "exchange": part_s["data"],
            "update": part_s["optimizer"],
        },
        bound_samples_per_s=float("inf"),
    )
