"""An accelerator with its peak rates; its achieved rates are fitted in ``simulator.costs``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forerun.spaces.errors import RequestError
from forerun.spaces.workload import check_precision

if TYPE_CHECKING:
    from forerun.spaces.clusters.measurements import Measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as the framework counts it (MI250X: one of its two dies)."""

    name: str
    """Catalogue name."""
    title: str
    """Name for people."""
    vendor: str
    """Who makes it."""
    architecture: str
    """Generation, which cost rules go by."""
    memory_bytes: float
    """Bytes that the driver shows, fewer than the marketed figure."""
    memory_bytes_per_s: float
    """Peak rate of device memory."""
    peak_flops_per_s: Mapping[str, float]
    """Dense peak by precision (``bf16``, ``fp16``, ``fp32``, ``tf32``, ``fp8``, ``mxfp8``, ``fp4``, ``nvfp4``), never
    the sparse figure."""
    compute_units: int
    """Streaming multiprocessors or compute units, for wave quantisation."""
    matmul_ceiling: Mapping[str, float]
    """Largest share (0 to 1) of the dense peak that any measured matrix product reached, by precision (bf16 also stands
    for fp16)."""
    memory_efficiency: float
    """Share (0 to 1) of the memory bandwidth that streaming kernels reach."""
    watts: float | None
    """Power limit; None where no source gives one."""
    usd_per_hour: tuple[float, float] | None
    """Lowest and highest rental price found; None where no citable source gives one."""
    source: str
    """Source of the whole, in one line."""
    link_kind: str = "none"
    """Its scale-up links: "nvlink", "xgmi", "xelink", "roce", "ici" or "none"."""
    link_bytes_per_s: float = 0.0
    """All of these links together, one direction."""
    link_count: int = 0
    """Their number."""
    host_bytes_per_s: float = 0.0
    """To the host, one direction."""
    peer_access: bool = True
    """Devices of a node copy to each other over PCIe without passing through host memory."""
    host_speed: float = 1.0
    """Speed at which the usual host of the device launches kernels, over that of an H100's."""
    nic_bytes_per_s: float | None = None
    """Network line rate per device that is usual with this part; None where there is no usual one."""
    measured: "Measurements | None" = None
    """Seconds of operators, where a profile was taken."""
    like: str = ""
    """Catalogued device whose fitted constants it has; "" for those under its own name, or of its architecture."""
    compute_share: float = 1.0
    """Speed of matrix products and attention over what is fitted to micro-benchmarks (1.0 unless a calibration says
    otherwise; it changes no peak)."""
    attention_share: float = 1.0
    """That of attention, once more."""
    notes: str = ""
    """Remarks for a reader."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Source of each field."""

    @property
    def fitted_name(self) -> str:
        """Name of its fitted constants."""
        return self.like or self.name

    def peak(self, precision: str) -> float:
        """Dense peak in FLOP/s at ``precision``.

        Raises:
            RequestError: the precision is unknown, or the device lacks it; the message names its precisions.
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
