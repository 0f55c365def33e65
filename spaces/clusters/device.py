"""Accelerators with their peak rates, one YAML file each under ``data/devices``.

Achieved rates are fitted in ``simulator.costs``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forerun.spaces.documents import parse_document
from forerun.spaces.documents.package_data import package_names, package_text
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.units import parse_bytes, parse_flops, parse_rate
from forerun.spaces.workload import check_precision

if TYPE_CHECKING:
    from forerun.spaces.clusters.measurements import Measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as the framework counts it (MI250X: one of its two dies)."""

    name: str
    """Catalogue name."""
    title: str
    """Display name."""
    vendor: str
    """Manufacturer."""
    architecture: str
    """Generation, the key of cost rules."""
    memory_bytes: float
    """Memory in bytes as reported by the driver, less than the marketed figure."""
    memory_bytes_per_s: float
    """Peak rate of device memory."""
    peak_flops_per_s: Mapping[str, float]
    """Dense peak in FLOP/s by precision, never the sparse figure. Precisions are ``bf16``, ``fp16``, ``fp32``,
    ``tf32``, ``fp8``, ``mxfp8``, ``fp4`` and ``nvfp4``."""
    compute_units: int
    """Streaming multiprocessors or compute units, for wave quantisation."""
    matmul_ceiling: Mapping[str, float]
    """Largest share (0 to 1) of the dense peak in any measured matrix product, by precision (bf16 includes fp16)."""
    memory_efficiency: float
    """Share (0 to 1) of the memory bandwidth that streaming kernels reach."""
    watts: float | None
    """Power limit; None without a source."""
    usd_per_hour: tuple[float, float] | None
    """Lowest and highest rental price found; None without a citable source."""
    source: str
    """Source of the entry, in one line."""
    link_kind: str = "none"
    """Kind of its scale-up links: "nvlink", "xgmi", "xelink", "roce", "ici" or "none"."""
    link_bytes_per_s: float = 0.0
    """Rate of all these links together, one direction."""
    link_count: int = 0
    """Number of these links."""
    host_bytes_per_s: float = 0.0
    """Rate to the host, one direction."""
    peer_access: bool = True
    """Whether devices of a node copy to each other over PCIe without host memory."""
    host_speed: float = 1.0
    """Speed of kernel launches by the device's usual host, relative to the host of an H100."""
    nic_bytes_per_s: float | None = None
    """Usual network line rate per device; None where there is no usual one."""
    measured: "Measurements | None" = None
    """Measured seconds of operators, where a profile was taken."""
    like: str = ""
    """Catalogued device whose fitted constants it has; "" for those of its own name or architecture."""
    compute_share: float = 1.0
    """Speed of matrix products and attention relative to the fit to micro-benchmarks. The share is 1.0 unless
    calibrated, and does not change peaks."""
    attention_share: float = 1.0
    """Further factor on the speed of attention."""
    notes: str = ""
    """Remarks."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Source of each field."""

    @property
    def fitted_name(self) -> str:
        """Name of its fitted constants."""
        return self.like or self.name

    @property
    def half_precision(self) -> str:
        """Precision of a training in 16 bits: bf16 where the device has it, else fp16."""
        return "bf16" if "bf16" in self.peak_flops_per_s else "fp16"

    @property
    def usual_precision(self) -> str:
        """Precision of a training that names none: bf16, else fp16 where it is no slower than fp32, else fp32."""
        peaks, half = self.peak_flops_per_s, self.half_precision
        return half if half == "bf16" or peaks.get(half, 0.0) >= peaks.get("fp32", 0.0) else "fp32"

    def peak(self, precision: str) -> float:
        """Dense peak in FLOP/s at ``precision``.

        Raises
        ------
        RequestError
            The precision is unknown, or the device lacks it; the message names its precisions.
        """
        if precision in self.peak_flops_per_s:
            return self.peak_flops_per_s[precision]
        check_precision(precision)
        hint = (
            "use fp16"
            if precision == "bf16" and "fp16" in self.peak_flops_per_s
            else "it has " + ", ".join(self.peak_flops_per_s)
        )
        raise RequestError(f"{self.title} has no {precision} matrix units; {hint}")


def device_names() -> tuple[str, ...]:
    """Return the names of all catalogued devices, sorted."""
    return names_in("devices")


def load_device(name: str) -> Device:
    """Return the catalogued device called ``name``.

    Raises
    ------
    RequestError
        The device does not exist; the message names the nearest ones.
    """
    return device_from_mapping(read_entry("devices", name, "device"), name=name)


def device_from_mapping(data: Mapping[str, Any], *, name: str) -> Device:
    """Return the device of ``data`` (the keys of a catalogue file).

    Raises
    ------
    RequestError
        A value is not a quantity.
    """
    sources: Mapping[str, str] = data.get("sources", {})
    link = data.get("link", {})
    price = data.get("usd_per_hour")
    nic = data.get("nic_rate")
    return Device(
        name=name,
        title=data.get("title", name),
        vendor=data.get("vendor", "unknown"),
        architecture=data.get("architecture", "unknown"),
        memory_bytes=parse_bytes(data["memory"]),
        memory_bytes_per_s=parse_rate(data["memory_rate"]),
        peak_flops_per_s={precision: parse_flops(rate) for precision, rate in data["peak"].items()},
        compute_units=data["compute_units"],
        matmul_ceiling=dict(data["matmul_ceiling"]),
        memory_efficiency=data["memory_efficiency"],
        watts=data.get("watts"),
        usd_per_hour=(price[0], price[1]) if price else None,
        source=sources.get("peak", "the user's own figures"),
        link_kind=link.get("kind", "none"),
        link_bytes_per_s=parse_rate(link.get("rate", 0)),
        link_count=link.get("count", 0),
        host_bytes_per_s=parse_rate(data["host_rate"]),
        peer_access=data.get("peer_access", True),
        host_speed=data.get("host_speed", 1.0),
        nic_bytes_per_s=None if nic is None else parse_rate(nic),
        notes=data.get("notes", ""),
        like=data.get("like", ""),
        sources=dict(sources),
    )


def names_in(folder: str) -> tuple[str, ...]:
    """Return the sorted names of the catalogue entries in ``folder`` of the package data."""
    return package_names("forerun.spaces.clusters", "data", folder)


def read_entry(folder: str, name: str, what: str) -> Mapping[str, Any]:
    """Return the catalogue entry ``name`` of ``folder`` as plain data.

    Raises
    ------
    RequestError
        The entry does not exist; the message names its kind, ``what``.
    """
    names = names_in(folder)
    if name not in names:
        raise unknown(what, name, names)
    text = package_text("forerun.spaces.clusters", "data", folder, f"{name}.yaml")
    data: Mapping[str, Any] = parse_document(text, source=f"{name}.yaml").data
    return data
