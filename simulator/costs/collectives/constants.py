"""Fitted constants of one kind of link; a kind without measurements uses the nearest kind's constants."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.spaces.clusters.cluster import Level
from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.errors import unknown

PROTOCOLS = ("ll", "ll128", "simple")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConstants:
    """Rates and latencies of a collective library on one kind of link; triples are per protocol (LL, LL128, Simple)."""

    key: str
    """Name of the kind in ``data/``."""
    source: str
    """Measurement behind the fit."""
    architectures: tuple[str, ...]
    """Devices of the measurement (a prefix of ``Device.architecture``; empty: any)."""
    nominal_latency_s: float
    """``Level.latency_s`` of the fitted level."""
    efficiency: Mapping[str, float]
    """Share (0 to 1) of the line rate that long messages reach, by collective."""
    fraction: tuple[float, float, float]
    """Share of that bandwidth per protocol."""
    base_s: tuple[float, float, float]
    """Launch and handshake."""
    ring_step_s: tuple[float, float, float]
    """One step of a ring."""
    own_share: float = 0.0
    """Cost of moving the rank's own block, as a share of moving a block over the link."""
    peer_s: float = 0.0
    """Cost of each further peer of an all-to-all."""
    tree_step_s: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """One step of the tree."""
    in_switch_efficiency: float = 0.0
    """Share of the line rate where the switch reduces."""
    in_switch_base_s: float = 0.0
    """Launch and handshake of a reduction in the switch."""
    in_switch_members: int = 5
    """Smallest group that reduces in the switch."""
    crowding: float = 0.0
    """Exponent of the fall of the rate with the joined members (they share a host bridge)."""
    mesh: bool = False
    """Pairwise links: a device reaches one port per partner."""
    alone_share: float = 0.0
    """Share of all links of a sub-group (a node) that one communicator reaches (0: no limit). Several at once reach
    ``efficiency`` together."""
    staged: bool = False
    """Measured where devices copy through host memory."""
    between_sockets: Mapping[str, float] = field(default_factory=dict)
    """``efficiency`` of groups on both sockets of a host, by collective (empty: no other)."""

    def fitted_on(self, architecture: str) -> bool:
        """Check whether the constants were measured on devices of ``architecture``."""
        return not self.architectures or architecture.startswith(self.architectures)

    def steps_s(self, latency_s: float, *, tree: bool = False) -> tuple[float, ...]:
        """Return the seconds of one step per protocol on a level with ``latency_s`` instead of the nominal latency."""
        steps = self.tree_step_s if tree and any(self.tree_step_s) else self.ring_step_s
        return tuple(max(step + latency_s - self.nominal_latency_s, 0.25 * step) for step in steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """All fitted constants."""

    links: Mapping[str, LinkConstants]
    """Constants by key."""
    kinds: Mapping[str, tuple[str, ...]]
    """Possible keys of each ``Level.kind``, best first."""
    borrowed: Mapping[str, str]
    """Kinds without a fit, with the reason and the kind whose constants they use."""


def parse(document: Mapping[str, Any]) -> Table:
    """Return the table of the parsed YAML document (see ``data/collectives.yaml``)."""
    links = {}
    for key, row in document["links"].items():
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in row.items()
        }
        fields.pop("fit", None)
        links[key] = LinkConstants(key=key, **fields)
    kinds = {kind: tuple(keys) for kind, keys in document["kinds"].items()}
    return Table(links=links, kinds=kinds, borrowed=document["borrowed"])


@functools.cache
def table() -> Table:
    """Return the committed constants, read once."""
    return parse(package_yaml("forerun.simulator.costs", "data", "collectives.yaml"))


def constants_of(level: Level, architecture: str, known: Table | None = None) -> LinkConstants:
    """Return the constants of a level: those of its kind fitted on ``architecture``, else the first of its kind.

    Links staged through host memory have constants of their own, for any kind.

    The line rate is ignored, so a faster link keeps its constants and is never slower.

    Raises
    ------
    RequestError
        There are no constants for ``level.kind``.
    """
    rows = known or table()
    if level.kind not in rows.kinds:
        raise unknown("kind of link", level.kind, rows.kinds)
    kind = [rows.links[key] for key in rows.kinds[level.kind]]
    choices = [row for row in kind if row.staged == level.staged] or kind
    return next((row for row in choices if row.fitted_on(architecture)), choices[0])
