"""Division of GPUs between training and generation in reinforcement learning (PPO, GRPO and similar).

A step generates responses, passes them forward through the models whose log-probabilities the loss needs, trains on
them and gives the new weights to the engines. Colocated, all GPUs do one after the other; separately, engines generate
the next batch while the trainer works on this one, which is one step off-policy. The user states the rate of an engine:
forerun predicts training only.
"""

import dataclasses
from dataclasses import dataclass

import numpy as np

from forerun.search.answer.intervals import certain
from forerun.search.answer.searches import search_request
from forerun.search.board.rows import GIB, Row
from forerun.search.explore.flat.best import best_row
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.scorer import OnProgress
from forerun.search.request.setting import of_transformer
from forerun.simulator.costs import collective_time_s
from forerun.simulator.costs.host import host_link_rate
from forerun.spaces.errors import RequestError
from forerun.spaces.models import parameter_count
from forerun.spaces.strategies import Context
from forerun.spaces.units import format_seconds

MOST_SPLITS = 16
"""Most numbers of training GPUs to search; an evenly spaced subset of more numbers."""
LEAST_RATE, MOST_RATE = 1e-3, 1e9
"""Accepted tokens per second of one GPU: from one in a quarter of an hour to more than any memory bandwidth allows."""
ENGINE_SHARE = 0.5
"""Share of a GPU's memory for an engine's weights and cache if the trainer's states stay on the GPU."""
FORWARD_SHARE = 1 / 3
"""Work of a forward pass over that of a training pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The generation of one step.

    ``tokens_per_s``: measured rate of one GPU. ``response``: mean tokens of a response. ``forwards``: forward passes of
    the trainer's model over every batch in addition to training (log-probabilities of the policy and of a reference).
    """

    tokens_per_s: float
    response: float
    forwards: int = 1

    def __post_init__(self) -> None:
        if not LEAST_RATE <= self.tokens_per_s <= MOST_RATE:
            raise RequestError(
                f"a GPU generates {LEAST_RATE:g} to {MOST_RATE:g} tokens per second, but got {self.tokens_per_s}"
            )
        if not 1 <= self.response <= MOST_RATE:
            raise RequestError(f"a response has 1 to {MOST_RATE:g} tokens, but got {self.response:g}")
        if not 0 <= self.forwards <= 16:
            raise RequestError(f"forward passes besides training are 0 to 16, but got {self.forwards}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlacement:
    """One way to share the GPUs.

    ``step_time_s`` is the sum of all parts if trainer and engines are ``together``, else the longer of generation and
    the other parts, plus ``weights_s``. ``row``: row of the trainer. ``reload_s``: time in which the trainer's states
    are moved to host memory before all GPUs generate, and back.
    """

    together: bool
    train_gpus: int
    rollout_gpus: int
    row: Row
    generate_s: float
    forward_s: float
    train_s: float
    weights_s: float
    reload_s: float = 0.0

    @property
    def step_time_s(self) -> float:
        """Seconds from one update to the next."""
        training_s = self.forward_s + self.train_s
        busy_s = self.generate_s + training_s if self.together else max(self.generate_s, training_s)
        return busy_s + self.weights_s + self.reload_s

    @property
    def idle_share(self) -> float:
        """Share of all GPUs' time spent waiting for trainer or engines."""
        if self.together:
            return (self.weights_s + self.reload_s) / self.step_time_s
        used = self.rollout_gpus * self.generate_s + self.train_gpus * (self.forward_s + self.train_s)
        return 1 - used / ((self.rollout_gpus + self.train_gpus) * self.step_time_s)


def place(request: Request, rollout: Rollout, on_progress: OnProgress | None = None) -> tuple[RolloutPlacement, ...]:
    """Return all placements on the GPUs of a request, fastest first; the trainer of each has its best strategy.

    ``on_progress`` is called with every searched number of GPUs.

    Raises:
        RequestError: the request is wrong, has no single number of GPUs, or responses are longer than sequences.
        NothingFeasible: the training fits on no searched number of GPUs.
        EndedEarly: interrupted, with the placements so far.
    """
    setting = of_transformer(resolve(request))
    if setting.gpus is None or len(setting.gpus) != 1:
        raise RequestError("trainer and engines share one number of GPUs; give --gpus N")
    seq_len = setting.context.workload.seq_len
    if rollout.response > seq_len:
        raise RequestError(
            f"responses of {rollout.response:g} tokens are longer than sequences of {seq_len} (--seq-len counts prompt "
            "and response)"
        )
    (gpus,) = setting.gpus
    placements: list[RolloutPlacement] = []
    counts = _counts(setting.context, gpus)
    try:
        for place, count in enumerate(counts):
            if on_progress is not None:
                best = min((one.step_time_s for one in placements), default=None)
                on_progress("searching trainers", place, len(counts), f"best {format_seconds(best)}" if best else "")
            row = best_row(dataclasses.replace(setting, gpus=(count,)), objective="throughput")
            if row is not None:
                placements.append(_placement(setting.context, rollout, certain(setting.context, (row,))[0], gpus))
    except KeyboardInterrupt as stop:
        raise EndedEarly(_fastest_first(placements), stop) from None
    if not placements:
        search_request(dataclasses.replace(setting.request, top=1, objective="throughput"))  # raises the reasons
    return _fastest_first(placements)


def _fastest_first(placements: list[RolloutPlacement]) -> tuple[RolloutPlacement, ...]:
    return tuple(sorted(placements, key=lambda one: (one.step_time_s, one.train_gpus)))


def _counts(context: Context, gpus: int) -> list[int]:
    """Return the numbers of training GPUs to search."""
    # Whole nodes, or any number on a single node; the number of all GPUs is the colocated case.
    node = context.cluster.devices_per_node
    unit = node if gpus > node else 1
    counts = list(range(unit, gpus, unit))
    if len(counts) > MOST_SPLITS:
        counts = [counts[int(place)] for place in np.unique(np.linspace(0, len(counts) - 1, MOST_SPLITS).round())]
    return [gpus, *reversed(counts)]


def _placement(context: Context, rollout: Rollout, row: Row, gpus: int) -> RolloutPlacement:
    together = row.gpus == gpus
    engines = gpus if together else gpus - row.gpus
    generated = context.workload.global_batch * rollout.response
    return RolloutPlacement(
        together=together,
        train_gpus=row.gpus,
        rollout_gpus=engines,
        row=row,
        generate_s=generated / (rollout.tokens_per_s * engines),
        forward_s=rollout.forwards * FORWARD_SHARE * row.step_time_s,
        train_s=row.step_time_s,
        weights_s=_weights_s(context, gpus),
        reload_s=_reload_s(context, row) if together else 0.0,
    )


def _reload_s(context: Context, row: Row) -> float:
    """Return the seconds to move a trainer's parameters and optimizer states to host memory and back."""
    # Nothing moves if the states leave enough memory for an engine (``ENGINE_SHARE``).
    states_bytes = GIB * (row.memory_gib["parameters"] + row.memory_gib["optimizer"])
    if states_bytes <= (1 - ENGINE_SHARE) * context.cluster.device.memory_bytes:
        return 0.0
    return 2 * states_bytes / host_link_rate(context.cluster)


def _weights_s(context: Context, gpus: int) -> float:
    """Compute the seconds to bring the weights in 16 bit to every node."""
    # The devices of a node receive a share each, then gather them.
    node = min(context.cluster.devices_per_node, gpus)
    size, nodes = 2.0 * parameter_count(context.model), gpus / node
    across = collective_time_s(context.cluster, "broadcast", size / node, nodes, node) if nodes > 1 else 0.0
    return float(across) + float(collective_time_s(context.cluster, "all_gather", size, node))
