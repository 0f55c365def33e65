"""An accelerator as what it can do at most; what it reaches in practice is fitted in ``simulator.costs``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.spaces.clusters.measurements import Measurements

# Where a precision has no ceiling of its own, the nearest one that runs on the same units.
_CEILING_OF: Mapping[str, tuple[str, ...]] = {
    "fp16": ("bf16",),
    "bf16": ("fp16",),
    "mxfp8": ("fp8",),
    "nvfp4": ("fp4", "fp8"),
    "fp4": ("nvfp4", "fp8"),
    "tf32": ("bf16", "fp16"),
    "fp32": ("bf16", "fp16"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as the framework sees it (MI250X: one of its two dies).

    ``memory_bytes``: what the driver shows, less than the marketed figure.
    ``peak_flops_per_s``: dense peak by precision name (``bf16``, ``fp16``, ``fp32``, ``tf32``, ``fp8``, ``mxfp8``,
    ``fp4``, ``nvfp4``), never the sparse figure. ``compute_units``: streaming multiprocessors or
    compute units, for wave quantisation.
    ``matmul_ceiling``: largest share of the dense peak any measured matrix product reached, by precision
    (bf16 also stands for fp16); ``memory_efficiency``: share of the memory bandwidth that streaming kernels reach.
    ``usd_per_hour``: lowest and highest rental price found, None when no citable source gives one.
    ``link_kind`` ("nvlink", "xgmi", "roce", "ici" or "none"), ``link_bytes_per_s`` (all links of the device together,
    one direction) and ``link_count``: its scale-up links. ``host_bytes_per_s``: to the host, one direction.
    ``host_speed``: at which the usual host of the device launches kernels, over that of an H100's.
    ``peer_access``: devices of a node copy to each other over PCIe without passing through host memory.
    ``compute_share``, ``attention_share``: speed of matrix products and attention, and of attention once more, over
    what is fitted to micro-benchmarks (1.0 unless a calibration says otherwise; they change no peak).
    ``measured``: seconds of operators where a profile was taken.
    ``nic_bytes_per_s``: network line rate per device that is usual with this part, None when there is no usual one.
    ``sources``: where each field comes from; ``source`` the whole in one line. ``notes``: what a reader must know.
    """

    name: str
    title: str
    vendor: str
    architecture: str
    memory_bytes: float
    memory_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    compute_units: int
    matmul_ceiling: Mapping[str, float]
    memory_efficiency: float
    watts: float | None
    usd_per_hour: tuple[float, float] | None
    source: str
    link_kind: str = "none"
    link_bytes_per_s: float = 0.0
    link_count: int = 0
    host_bytes_per_s: float = 0.0
    peer_access: bool = True
    host_speed: float = 1.0
    nic_bytes_per_s: float | None = None
    measured: "Measurements | None" = None
    compute_share: float = 1.0
    attention_share: float = 1.0
    notes: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)

    def peak(self, precision: str) -> float:
        """Dense peak in FLOP/s at ``precision``.

        Raises:
            RequestError: the device has no such precision; the message names the ones it has.
        """
        if precision in self.peak_flops_per_s:
            return self.peak_flops_per_s[precision]
        hint = (
            "use fp16"
            if precision == "bf16" and "fp16" in self.peak_flops_per_s
            else "it has " + ", ".join(self.peak_flops_per_s)
        )
        raise RequestError(f"{self.title} has no {precision} matrix units; {hint}")

    def ceiling(self, precision: str) -> float:
        """Largest share of ``peak(precision)`` that a matrix product reaches; a precision without a figure of its own
        takes that of the nearest one on the same units (fp16 and tf32: bf16; mxfp8 and fp4: fp8).

        Raises:
            RequestError: the device has no such precision.
        """
        self.peak(precision)
        for name in (precision, *_CEILING_OF.get(precision, ())):
            if name in self.matmul_ceiling:
                return self.matmul_ceiling[name]
        return min(self.matmul_ceiling.values())
