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
from forerun.spaces.documents.package_data import package_yaml
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
    """One constant, an entry of ``data/constants.yaml``.

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


CONSTANTS: tuple[Constant, ...] = tuple(
    Constant(**entry | {"fields": tuple(entry.get("fields", ()))})
    for entry in package_yaml("forerun.simulator.calibration", "data", "constants.yaml")
)
"""All constants, in the order of output."""

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
