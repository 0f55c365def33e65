"""Devices that software supports: vendors, architectures and links, as data of profiles and switches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.spaces.clusters.cluster import Cluster

UNSTATED = "unknown"
"""Vendor of a device whose document names none: any software is assumed to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """Properties of a cluster, or of a group of its nodes, that determine the available software."""

    device: str
    """Catalogue name of its devices."""
    vendor: str
    """Their manufacturer."""
    architecture: str
    """Their generation."""
    link: str
    """Kind of the links of the first level; "no" for a single device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Requirements of software on devices; an empty field admits everything."""

    vendors: tuple[str, ...] = ()
    """Manufacturers of devices."""
    architectures: tuple[str, ...] = ()
    """Prefixes of architectures."""
    links: tuple[str, ...] = ()
    """Kinds of links of the first level."""

    def runs_on(self, kind: DeviceKind) -> bool:
        """Check whether a kind of device meets the requirements."""
        return not self.unmet(kind)

    @property
    def needed(self) -> str:
        """Requirements as text; "" for none.

        >>> Hardware(vendors=("NVIDIA",), links=("nvswitch",)).needed
        'NVIDIA; nvswitch'
        """
        return "; ".join(_either(names) for names in (self.vendors, self.architectures, self.links) if names)

    def unmet(self, kind: DeviceKind) -> str:
        """Return the unmet requirements of a kind of device as text; "" for none.

        >>> tpu = DeviceKind(device="tpu-v5p", vendor="Google", architecture="TPU v5p", link="torus")
        >>> Hardware(vendors=("NVIDIA", "AMD")).unmet(tpu)
        'needs devices of NVIDIA or AMD, but tpu-v5p is of Google'
        """
        if self.vendors and kind.vendor not in (*self.vendors, UNSTATED):
            return f"needs devices of {_either(self.vendors)}, but {kind.device} is of {kind.vendor}"
        spelled = kind.architecture.casefold()  # users' documents spell it freely
        if self.architectures and not spelled.startswith(tuple(map(str.casefold, self.architectures))):
            return f"needs {_either(self.architectures)}, but {kind.device} is {kind.architecture}"
        if self.links and kind.link not in self.links:
            return f"needs {_either(self.links)} links, but {kind.device} has {kind.link} links here"
        return ""


ANY = Hardware()
"""Hardware of software that runs everywhere."""


def read_hardware(entry: Mapping[str, Sequence[Any]]) -> Hardware:
    """Return the hardware in an entry of the catalogue.

    Raises:
        TypeError: the entry has an unknown key.
    """
    return Hardware(**{key: tuple(values) for key, values in entry.items()})


def device_kinds(cluster: Cluster) -> tuple[DeviceKind, ...]:
    """Return the kinds of devices of a cluster: one, or one per group of nodes."""
    clusters = [group.cluster for group in cluster.groups] or [cluster]
    return tuple(
        dict.fromkeys(
            DeviceKind(
                device=one.device.name,
                vendor=one.device.vendor,
                architecture=one.device.architecture,
                link=one.levels[0].kind if one.levels else "no",
            )
            for one in clusters
        )
    )


def _either(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
