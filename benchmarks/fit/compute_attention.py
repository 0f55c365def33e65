"""Fit of fused attention: forward and backward surfaces per device."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.fit.compute_data import facts, held_out
from forerun.simulator.costs.attention import flash_surface_s
from forerun.simulator.costs.efficiency import AttentionEfficiency

_BLOCK_ROWS = 128  # queries per block of FlashAttention 2 and 3 at head dimension 128

# Start, lower and upper bound of: peak share, head dimension ramp, key ramp, wave hardness, fixed seconds.
_START = np.array([0.7, 40.0, 200.0, 0.3, 4e-6])
_LOW = np.array([0.2, 2.0, 1.0, 0.02, 5e-7])
_HIGH = np.array([1.2, 400.0, 1500.0, 1.0, 8e-6])

# Shapes of training: long enough and at least one block per two compute units.
_MIN_SEQUENCE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFit:
    """A fitted surface with its errors on sequences of 1,024 and more."""

    surface: AttentionEfficiency
    rows: int
    fitted_error: float
    held_out_error: float
    held_out_p90: float


def seconds(surface: AttentionEfficiency, device: str, frame: pd.DataFrame, *, backward: bool) -> NDArray[np.float64]:
    """Predict the rows of ``frame``, which say themselves whether they are causal."""
    chip = facts(device)
    shape = {
        name: frame[name].to_numpy(dtype=float) for name in ("batch", "heads", "kv_heads", "head_dim", "value_head_dim")
    }
    sequence = frame.seq.to_numpy(dtype=float)
    parts = [
        flash_surface_s(
            surface,
            **shape,
            seq_q=sequence,
            seq_k=sequence,
            causal=causal,
            window=None,
            backward=backward,
            flops_per_s=chip.half,
            bytes_per_s=chip.bytes_per_s * 0.85,
            compute_units=chip.units,
        )
        for causal in (False, True)
    ]
    return np.where(frame.causal, parts[1], parts[0])


def fit_surface(
    device: str, frame: pd.DataFrame, *, backward: bool, head_dim_ramp: float | None, flash2_share: float
) -> AttentionFit:
    """Fit three quarters of the shapes; ``head_dim_ramp`` is given where the rows have one head dimension only."""
    held = held_out(frame, ["batch", "heads", "kv_heads", "seq", "head_dim"])
    target = np.log(frame.seconds.to_numpy())
    long = (frame.seq >= _MIN_SEQUENCE).to_numpy()
    weight = np.where(long, 1.0, 0.4) * np.sqrt(frame.weight.to_numpy())
    train = frame[~held]

    def build(logs: NDArray[np.float64]) -> AttentionEfficiency:
        values = np.exp(logs)
        return AttentionEfficiency(
            peak_share=float(values[0]),
            head_dim_ramp=float(values[1]) if head_dim_ramp is None else head_dim_ramp,
            block_rows=_BLOCK_ROWS,
            key_ramp=float(values[2]),
            wave_hardness=float(values[3]),
            fixed_s=float(values[4]),
            flash2_share=flash2_share,
        )

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        error = np.log(seconds(build(logs), device, train, backward=backward)) - target[~held]
        return np.concatenate([error * weight[~held], 0.01 * (logs - np.log(_START))])

    found = least_squares(
        residuals, np.log(_START), bounds=(np.log(_LOW), np.log(_HIGH)), loss="soft_l1", f_scale=0.1, diff_step=1e-3
    )
    surface = build(found.x)
    error = np.abs(np.log(seconds(surface, device, frame, backward=backward)) - target)
    return AttentionFit(
        surface=surface,
        rows=len(frame),
        fitted_error=float(np.median(error[long & ~held])),
        held_out_error=float(np.median(error[long & held])),
        held_out_p90=float(np.quantile(error[long & held], 0.9)),
    )


def derived_backward(
    forward: AttentionEfficiency, theirs: AttentionEfficiency, ratio: float, *, relative: bool
) -> AttentionEfficiency:
    """Give a device without backward rows the shape of another's, at ``ratio`` of its own forward speed.

    ``relative``: the ratio is one of rates at head dimension 128 and long sequences, and short sequences cost what
    they cost forward; otherwise the ratio is one of peak shares.
    """
    if not relative:
        return replace(theirs, peak_share=forward.peak_share * ratio, flash2_share=forward.flash2_share)
    rate = forward.peak_share * ratio * 256 / (256 + forward.head_dim_ramp)
    ramp = theirs.head_dim_ramp
    return replace(forward, peak_share=rate * (640 + ramp) / 640, head_dim_ramp=ramp)


def level(surface: AttentionEfficiency, device: str, frame: pd.DataFrame, *, backward: bool = False) -> float:
    """Return (measured rate) / (rate of ``surface``), median over the rows of 3,000 tokens and more."""
    long = frame[frame.seq >= 3000]
    return float(np.median(seconds(surface, device, long, backward=backward) / long.seconds.to_numpy()))


def direction(frame: pd.DataFrame, column: str, *, causal: bool, weight: float = 1.0) -> pd.DataFrame:
    """Return the rows of ``frame`` that time ``column``, as the fit wants them."""
    rows = frame[frame[column].notna()]
    return rows.assign(seconds=rows[column], causal=causal, weight=weight)
