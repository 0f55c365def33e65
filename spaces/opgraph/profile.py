"""What the training software does with the hardware, for operator graphs; the profiles are catalogue data."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from forerun.spaces.clusters.device import Device
from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.errors import RequestError, unknown

DEFAULT_PROFILE = "pytorch-ddp"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProfile:
    """Behaviour of a framework. Times are of the host and per device unless said otherwise.

    ``operator_host_s``: to issue one operator in one direction; the step is bound by the host when its kernels are
    shorter. ``piece_host_s``: to join or cut one rank's piece of a gathered tensor. ``overlap``: share of the backward
    pass under which gradients may be exchanged (0: afterwards). ``bucket_bytes``: gradients of one all-reduce, which is
    closed when it has them, or with ``strict_buckets`` before it would exceed them; ``first_bucket_bytes``: the same of
    the first (None: as the others).

    What a step of several devices takes besides the bytes that it moves. ``jitter``: deviation of a device's steps over
    their mean, so that all wait for the slowest (order statistics). ``blocked_share``: of the time of an empty
    all-reduce, which computation stands still for when one is launched under it. ``rendezvous_s``: of several nodes, to
    agree on what is exchanged and to pack it (Horovod's coordinator, say). ``node_step_s``: what every further node
    adds, for each group of replicas that shares its ports. ``all_reduce_share``, ``gradient_share``: rate between nodes
    of all-reduces of a layer and of the gradients, relative to the collective rule.

    ``staged_bytes_per_s``: rate of halos, tail gathers and gradients between the parts of a picture that are copied
    through the host's memory, one after the other; None where devices exchange them directly.
    ``storage_bytes_per_s``: what one node reads from storage, None: never a limit.

    ``shares_hybrid_weights``: data+filter exchanges only the part of the weights that a device holds.
    ``gathers_channel_gradient``: channel gathers input gradients instead of adding up padded ones. ``winograd``: fp32
    convolutions use minimal filtering. ``fuses_elementwise``: an activation costs no pass of its own behind a norm or
    a convolution. ``optimizer_moves``: reads and writes per parameter of the update. ``state_elements``: fp32 values
    kept per parameter besides it (gradient and momentum: 2).
    """

    name: str
    source: str
    operator_host_s: float = 0.0
    piece_host_s: float = 0.0
    overlap: float = 0.0
    bucket_bytes: float = 25 * 2.0**20
    first_bucket_bytes: float | None = None
    strict_buckets: bool = False
    jitter: float = 0.0
    blocked_share: float = 0.0
    rendezvous_s: float = 0.0
    node_step_s: float = 0.0
    all_reduce_share: float = 1.0
    gradient_share: float = 1.0
    staged_bytes_per_s: float | None = None
    storage_bytes_per_s: float | None = None
    shares_hybrid_weights: bool = True
    gathers_channel_gradient: bool = True
    winograd: bool = True
    fuses_elementwise: bool = False
    optimizer_moves: float = 5.0
    state_elements: float = 2.0


OPTIMIZERS: Mapping[str, tuple[float, float]] = {"sgd": (1.0, 3.0), "momentum": (2.0, 5.0), "adam": (3.0, 7.0)}
"""By optimizer: fp32 values kept per parameter besides it (the gradient among them), and values read and written by its
update: parameter and gradient read, parameter written, and each state read and written."""


def with_optimizer(profile: GraphProfile, name: str | None) -> GraphProfile:
    """Return a profile with another optimizer than its own; None: as it is.

    Raises:
        RequestError: there is no such optimizer.
    """
    if name is None:
        return profile
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    states, moves = OPTIMIZERS[name]
    return replace(profile, state_elements=states, optimizer_moves=moves)


def graph_profile_names() -> tuple[str, ...]:
    """Names of all profiles for operator graphs."""
    return tuple(sorted(_data()))


@lru_cache(maxsize=16)
def load_graph_profile(name: str) -> GraphProfile:
    """The profile called ``name``.

    Raises:
        RequestError: there is none; the text names the known ones.
    """
    data = _data()
    if name not in data:
        raise unknown("framework for operator graphs", name, data)
    known = {field.name for field in fields(GraphProfile)}
    entry = data[name]
    stray = set(entry) - known
    if stray:
        raise ValueError(f"profile {name} has keys that are not fields: {sorted(stray)}")
    return GraphProfile(name=name, **entry)


@lru_cache(maxsize=1)
def _data() -> Mapping[str, Mapping[str, Any]]:
    loaded: dict[str, dict[str, Any]] = package_yaml("forerun.spaces.opgraph", "data", "profiles.yaml")
    return loaded


def default_precision(device: Device) -> str:
    """Return what frameworks train convolutions in unless told otherwise: tf32 where the device has it, else fp32.

    Raises:
        RequestError: the device has neither.
    """
    for precision in ("tf32", "fp32"):
        if precision in device.peak_flops_per_s:
            return precision
    known = ", ".join(device.peak_flops_per_s)
    raise RequestError(f"{device.title} has neither tf32 nor fp32 rates; add --precision, one of {known}")
