"""The physical constants of a calibration, their effects, and their prior spreads.

A constant is a number ``z`` of standard deviations from the catalogue: ``z = 0`` changes nothing, bit for bit. A factor
multiplies by ``exp(spread * z)``; a share moves by ``spread * z`` and stays between 0 and 1. Together they turn a
context into one with the device, links and framework profile of the user's machine; cost rules do not change. Profiles
of transformers and of operator graphs have different fields: a constant acts on the existing ones.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from forerun.simulator.opgraph import GraphContext
from forerun.spaces.clusters.cluster import Cluster, Level
from forerun.spaces.clusters.device import Device
from forerun.spaces.clusters.spec import NETWORK_KINDS
from forerun.spaces.errors import unknown
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.opgraph.profile import GraphProfile
from forerun.spaces.strategies import Context

C = TypeVar("C", bound=Context | GraphContext)
P = TypeVar("P", FrameworkProfile, GraphProfile)

_FIELDS = {kind: frozenset(field.name for field in fields(kind)) for kind in (FrameworkProfile, GraphProfile)}
LARGEST_Z = 4.0
"""Limit of constants in standard deviations: beyond it, the runs are of another machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant. ``spread``: standard deviation of the prior, of the logarithm of a factor or of a share.

    ``share``: a number between 0 and 1 changed by addition, otherwise a factor on the catalogue's value. ``fields``:
    affected fields of framework profiles; ``part``: ``device``, ``links`` or ``profile``.
    """

    name: str
    title: str
    part: str
    spread: float
    share: bool = False
    fields: tuple[str, ...] = ()

    def factor(self, z: float) -> float:
        """Return the factor (for a share, the addend) at ``z``; exactly 1 (0) at 0."""
        return self.spread * z if self.share else math.exp(self.spread * z)

    def acts_on(self, context: Context | GraphContext) -> bool:
        """Check whether ``context`` has the constant's quantity; a constant of the profile needs one of its fields."""
        return self.part != "profile" or not _FIELDS[type(software_of(context))].isdisjoint(self.fields)


CONSTANTS: tuple[Constant, ...] = (
    Constant(name="compute", title="speed of matrix products and attention", part="device", spread=0.12),
    Constant(name="attention", title="speed of attention, on top of compute", part="device", spread=0.15),
    Constant(name="memory_bandwidth", title="device memory bandwidth reached", part="device", spread=0.15),
    Constant(name="scale_up_bandwidth", title="bandwidth inside the scale-up domain", part="links", spread=0.3),
    Constant(name="network_bandwidth", title="bandwidth of the network", part="links", spread=0.4),
    Constant(
        name="collective_start",
        title="start of tensor-parallel collectives",
        part="profile",
        spread=0.7,
        fields=("collective_launch_s", "tensor_step_s"),
    ),
    Constant(
        name="host_layer",
        title="host time per layer",
        part="profile",
        spread=0.4,
        fields=("host_layer_s", "host_expert_s"),
    ),
    Constant(
        name="host_operator",
        title="host time per operator",
        part="profile",
        spread=0.7,
        fields=("operator_host_s", "piece_host_s"),
    ),
    Constant(
        name="host_rank",
        title="host time per layer and further tensor rank",
        part="profile",
        spread=0.4,
        fields=("host_rank_s", "pipeline_rank_s"),
    ),
    Constant(
        name="host_microbatch",
        title="host time per microbatch",
        part="profile",
        spread=0.7,
        fields=("host_microbatch_s",),
    ),
    Constant(name="host_step", title="host time per step", part="profile", spread=1.0, fields=("host_step_s",)),
    Constant(
        name="p2p_fixed",
        title="fixed time of a pipeline p2p transfer",
        part="profile",
        spread=0.7,
        fields=("p2p_fixed_s",),
    ),
    Constant(
        name="rendezvous",
        title="rendezvous of nodes before gradients are exchanged",
        part="profile",
        spread=0.7,
        fields=("rendezvous_s", "node_step_s"),
    ),
    Constant(
        name="jitter",
        title="deviation of a device's steps, for the slowest of which all wait",
        part="profile",
        spread=0.7,
        fields=("jitter",),
    ),
    Constant(
        name="staging",
        title="rate of copies through the host's memory and of storage",
        part="profile",
        spread=0.4,
        fields=("staged_bytes_per_s", "storage_bytes_per_s"),
    ),
    Constant(
        name="overlap_gradients",
        title="share of the gradient reduction under the backward pass",
        part="profile",
        spread=0.25,
        share=True,
        fields=("overlap_gradients", "overlap"),
    ),
    Constant(
        name="overlap_parameters",
        title="share of the parameter gather under the forward pass",
        part="profile",
        spread=0.25,
        share=True,
        fields=("overlap_parameters",),
    ),
    Constant(
        name="overlap_tensor",
        title="share of tensor-parallel collectives under matrix products",
        part="profile",
        spread=0.25,
        share=True,
        fields=("overlap_tensor", "overlap_tensor_backward"),
    ),
)
"""All constants, in the order of output. Spreads are the differences among profiles and devices of the catalogue
(docs/calibration.md)."""

NAMES = tuple(constant.name for constant in CONSTANTS)


def constant_named(name: str) -> Constant:
    """Return the constant called ``name``.

    Raises:
        RequestError: it does not exist.
    """
    for constant in CONSTANTS:
        if constant.name == name:
            return constant
    raise unknown("constant", name, NAMES)


def software_of(context: Context | GraphContext) -> FrameworkProfile | GraphProfile:
    """Return the framework profile of a context."""
    return context.profile if isinstance(context, GraphContext) else context.framework


def calibrated(context: C, z: Mapping[str, float]) -> C:
    """Return ``context`` with its constants at ``z`` (by name; unnamed ones do not change)."""
    moved = {constant: z[constant.name] for constant in CONSTANTS if z.get(constant.name)}
    if not moved:
        return context
    factors = {constant.name: constant.factor(value) for constant, value in moved.items()}
    parts = {constant.part for constant in moved}
    cluster = _cluster(context.cluster, factors) if parts & {"device", "links"} else context.cluster
    if isinstance(context, GraphContext):
        graphs = _profile(context.profile, factors) if "profile" in parts else context.profile
        return replace(context, cluster=cluster, profile=graphs)
    profile = _profile(context.framework, factors) if "profile" in parts else context.framework
    return replace(context, cluster=cluster, framework=profile)


def _cluster(cluster: Cluster, factors: Mapping[str, float]) -> Cluster:
    return replace(
        cluster,
        device=_device(cluster.device, factors),
        levels=tuple(_level(level, factors) for level in cluster.levels),
    )


def _device(device: Device, factors: Mapping[str, float]) -> Device:
    return replace(
        device,
        compute_share=device.compute_share * factors.get("compute", 1.0),
        attention_share=device.attention_share * factors.get("attention", 1.0),
        memory_bytes_per_s=device.memory_bytes_per_s * factors.get("memory_bandwidth", 1.0),
    )


def _level(level: Level, factors: Mapping[str, float]) -> Level:
    factor = factors.get("network_bandwidth" if level.kind in NETWORK_KINDS else "scale_up_bandwidth", 1.0)
    return replace(level, bytes_per_s=level.bytes_per_s * factor, port_bytes_per_s=level.port_bytes_per_s * factor)


def _profile(profile: P, factors: Mapping[str, float]) -> P:
    changes: dict[str, Any] = {}
    for constant in CONSTANTS:
        if constant.name not in factors:
            continue
        for field in _FIELDS[type(profile)].intersection(constant.fields):
            value, factor = getattr(profile, field), factors[constant.name]
            if value is not None:  # runs have no information about a missing field
                changes[field] = min(max(value + factor, 0.0), 1.0) if constant.share else value * factor
    return replace(profile, **changes)
