"""Fit of matrix products: one surface per device and input width, then gradients, groups and the sustained clock."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.fit.compute_data import facts, held_out
from forerun.simulator.costs.efficiency import GemmEfficiency, tiles_of
from forerun.simulator.costs.gemm import gemm_surface_s

# Start, lower and upper bound of: peak share, wave hardness, k ramp, memory share, fixed seconds, shares of the three
# smaller tile classes, seconds and bytes per element of A that quantising adds to the fp8 rows.
_START = np.array([0.80, 0.25, 130.0, 0.80, 2.5e-6, 0.90, 0.70, 0.55, 2e-6, 4.0])
_LOW = np.array([0.30, 0.02, 8.0, 0.40, 3e-7, 0.60, 0.35, 0.20, 1e-7, 0.5])
_HIGH = np.array([1.00, 1.00, 1500.0, 1.00, 2e-5, 1.00, 1.00, 1.00, 4e-5, 12.0])
# An fp8 product starts like any other; what the rows show beyond is the kernels that quantise.
_LONGEST_FP8_START = 4e-6
# Spread of the weak prior that keeps constants the rows do not see near their start (natural logarithm).
_SPREAD = np.array([1.0, 1.0, 1.0, 0.3, 1.0, 0.15, 0.2, 0.3, 1.0, 0.5])


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmFit:
    """A fitted surface and how well it does on the shapes of training, fitted and held out."""

    surface: GemmEfficiency
    rows: int
    fitted_error: float
    held_out_error: float
    held_out_p90: float


def training_shapes(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Mark what training runs: at least 512 tokens and 512 wide."""
    return np.asarray((frame.m >= 512) & (frame.n >= 512) & (frame.k >= 512))


def surface_of(values: NDArray[np.float64]) -> GemmEfficiency:
    """Build the constants from the vector that the fit varies."""
    return GemmEfficiency(
        peak_share=float(values[0]),
        tiles=tiles_of((1.0, *values[5:8])),
        wave_hardness=float(values[1]),
        k_ramp=float(values[2]),
        memory_share=float(values[3]),
        fixed_s=float(values[4]),
        data_gradient_share=1.0,
        weight_gradient_share=1.0,
        grouped_share=1.0,
    )


def seconds(
    surface: GemmEfficiency, device: str, frame: pd.DataFrame, *, fp8: bool = False, kind: str = "forward"
) -> NDArray[np.float64]:
    """Predict the rows of ``frame`` (columns m, n, k and optionally groups) with ``surface``."""
    chip = facts(device)
    return gemm_surface_s(
        surface,
        frame.m.to_numpy(),
        frame.n.to_numpy(),
        frame.k.to_numpy(),
        groups=frame.groups.to_numpy() if "groups" in frame else 1,
        kind=kind,
        flops_per_s=chip.fp8 if fp8 else chip.half,
        bytes_per_s=chip.bytes_per_s,
        compute_units=chip.units,
        input_bytes=1.0 if fp8 else 2.0,
    )


def sweep_seconds(values: NDArray[np.float64], device: str, frame: pd.DataFrame, fp8: bool) -> NDArray[np.float64]:
    """Predict rows of the sweep, where fp8 rows include a kernel that quantises A."""
    predicted = seconds(surface_of(values), device, frame, fp8=fp8)
    if not fp8:
        return predicted
    moved = values[9] * frame.m.to_numpy() * frame.k.to_numpy()
    return predicted + values[8] + moved / (facts(device).bytes_per_s * values[3])


def fit_surface(device: str, frame: pd.DataFrame, *, fp8: bool) -> GemmFit:
    """Fit three quarters of the shapes and report both parts; the result is that of the fitted part."""
    held = held_out(frame, ["m", "n", "k"])
    large = training_shapes(frame)
    target = np.log(frame.seconds.to_numpy())
    weight = np.where(large, 1.0, 0.4)
    train = frame[~held]

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        error = (np.log(sweep_seconds(np.exp(logs), device, train, fp8)) - target[~held]) * weight[~held]
        prior = 0.02 * np.sqrt(len(train)) * 0.1 * (logs - np.log(_START)) / _SPREAD
        return np.concatenate([error, prior])

    best = min(_solutions(residuals, fp8=fp8), key=lambda found: found.cost)
    error = np.abs(np.log(sweep_seconds(np.exp(best.x), device, frame, fp8)) - target)
    return GemmFit(
        surface=surface_of(np.exp(best.x)),
        rows=len(frame),
        fitted_error=float(np.median(error[large & ~held])),
        held_out_error=float(np.median(error[large & held])),
        held_out_p90=float(np.quantile(error[large & held], 0.9)),
    )


def _solutions(residuals: Callable[[NDArray[np.float64]], NDArray[np.float64]], *, fp8: bool) -> Iterator:
    high = _HIGH.copy()
    if fp8:
        high[4] = _LONGEST_FP8_START
    for hardness, ramp in ((1.0, 1.0), (3.0, 0.4), (0.4, 2.5)):
        start = _START.copy()
        start[1] *= hardness
        start[2] *= ramp
        bounds = (np.log(_LOW), np.log(high))
        yield least_squares(
            residuals, np.log(start), bounds=bounds, loss="soft_l1", f_scale=0.1, diff_step=1e-3, max_nfev=60
        )


def gradient_share_of_linears(surface: GemmEfficiency, device: str, frame: pd.DataFrame) -> tuple[float, float]:
    """Return (speed of both gradients relative to forward, median error) from layers timed in both directions."""
    forward_level = np.median(np.log(frame.forward_s / seconds(surface, device, frame)))
    data = seconds(surface, device, frame.rename(columns={"n": "k", "k": "n"}), kind="data_gradient")
    weight_shape = pd.DataFrame({"m": frame.n, "n": frame.k, "k": frame.m})
    weight = seconds(surface, device, weight_shape, kind="weight_gradient_half")
    ratio = np.log(frame.backward_s / (data + weight)) - forward_level
    share = float(np.exp(-np.median(ratio)))
    return share, float(np.median(np.abs(ratio - np.median(ratio))))


def training_shares(surface: GemmEfficiency, device: str, frame: pd.DataFrame) -> dict[str, float]:
    """Return how fast each kind of product ran relative to ``surface``: the sustained level and the gradients'."""
    shares: dict[str, float] = {}
    plain, grouped = frame[frame.kind == "matmul"], frame[frame.kind == "group_matmul"]
    for product, rows in plain.groupby("product"):
        shares[str(product)] = _speed(surface, device, rows, str(product))
    level = shares["forward"]
    kinds = grouped.groupby("product")
    shares["grouped"] = float(np.median([_speed(surface, device, rows, str(name)) for name, rows in kinds])) / level
    error = []
    for product, rows in plain.groupby("product"):
        ratio = np.log(rows.seconds.to_numpy() / seconds(surface, device, rows, kind=str(product)))
        error.append(np.abs(ratio - np.median(ratio)))
    shares["error"] = float(np.median(np.concatenate(error)))
    return shares


def _speed(surface: GemmEfficiency, device: str, rows: pd.DataFrame, product: str) -> float:
    return float(np.median(seconds(surface, device, rows, kind=product) / rows.seconds.to_numpy()))


def sustained_ratio(surface: GemmEfficiency, device: str, frame: pd.DataFrame, *, fp8: bool) -> float:
    """Return (rate after long warm-up) / (fitted burst rate) over the large products of ``frame``."""
    large = frame[frame.m * frame.n * frame.k >= 2.0**36]
    return float(np.median(seconds(surface, device, large, fp8=fp8) / large.seconds.to_numpy()))


def generalises(lender: GemmEfficiency, device: str, frame: pd.DataFrame) -> float:
    """Return the median error on ``device`` of constants fitted to another one, once its level is known."""
    large = frame[training_shapes(frame)]
    ratio = np.log(seconds(lender, device, large) / large.seconds.to_numpy())
    return float(np.median(np.abs(ratio - np.median(ratio))))


def with_shares(surface: GemmEfficiency, *, data: float, weight: float, grouped: float) -> GemmEfficiency:
    """Return ``surface`` with the relative speeds of gradients and of grouped products."""
    return replace(surface, data_gradient_share=data, weight_gradient_share=weight, grouped_share=grouped)
