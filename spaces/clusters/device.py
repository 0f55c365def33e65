"""An accelerator as what it can do at most; what it reaches in practice is fitted in ``simulator.costs``."""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.spaces.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as the framework sees it (MI250X: one of its two dies).

    ``peak_flops_per_s``: dense peak by precision name (``bf16``, ``fp16``, ``fp32``, ``tf32``, ``fp8``, ``mxfp8``,
    ``fp4``, ``nvfp4``), never the sparse figure. ``compute_units``: streaming multiprocessors or
    compute units, for wave quantisation.
    ``matmul_ceiling``: largest share of the dense peak any measured matrix product reached, by precision
    (bf16 also stands for fp16); ``memory_efficiency``: share of the memory bandwidth that streaming kernels reach.
    ``usd_per_hour``: lowest and highest rental price found, None when no citable source gives one.
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
