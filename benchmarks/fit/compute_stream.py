"""Fit of memory-bound operators: bandwidth share and kernel time per device, and a check of the operator table."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.fit.compute_data import facts, held_out
from forerun.simulator.costs.efficiency import StreamEfficiency
from forerun.simulator.costs.memory_bound import StreamPass, stream_operator

# Which entry of the operator table a measured operator is, and whether it ran fused. GPT-NeoX runs the norms,
# rotary embedding, loss and plain softmax as framework calls; plain softmax includes neither mask nor casts.
OPERATORS = {
    "res_add": ("residual_add", True),
    "gelu": ("gelu", True),
    "layernorm": ("layernorm", True),
    "ScaledUpperTriangMaskedSoftmax": ("softmax", True),
    "RMSlayernorm": ("rmsnorm", False),
    "RoPE": ("rope", False),
    "parallel_cross_entropy_128": ("cross_entropy", False),
}

# The A100 rows ran an older layer norm, which the table keeps as the eager form.
_OLD_LAYERNORM = ("a100-sxm4-80", "layernorm")

# What the constants are fitted to; the other operators only check the table.
_FITTED = ("res_add", "gelu", "ScaledUpperTriangMaskedSoftmax")

# Elements from which the times are those of the device and not of the host's launches: 1,024 tokens of 4,096 for one
# kernel, ten times as many for the chains of framework calls.
_SMALLEST = {True: 4e6, False: 4e7}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFit:
    """Fitted constants with their errors."""

    constants: StreamEfficiency
    rows: int
    fitted_error: float
    held_out_error: float


def passes(frame: pd.DataFrame) -> list[tuple[StreamPass, NDArray[np.bool_], str, str]]:
    """List (table entry, rows of it, measured operator, column) for both directions of every operator."""
    found = []
    for op, (name, fused) in OPERATORS.items():
        for column in ("forward_s", "backward_s"):
            for device in frame.device.unique():
                use = fused and (device, op) != _OLD_LAYERNORM
                one = stream_operator(name).one_pass(fused=use, backward=column == "backward_s")
                rows = ((frame.op == op) & (frame.device == device) & (frame.elements >= _SMALLEST[fused])).to_numpy()
                found.append((one, rows, op, column))
    return found


def predict(constants: StreamEfficiency, device: str, one: StreamPass, elements: NDArray[np.float64]) -> NDArray:
    """Seconds of one pass; ``memory_bound_time_s`` without a catalogue device."""
    chip = facts(device)
    memory = elements * one.bytes_per_element / (chip.bytes_per_s * constants.memory_share)
    arithmetic = elements * one.math_per_element / (chip.units * constants.elements_per_unit_s)
    return np.maximum(memory, arithmetic) + one.kernels * constants.fixed_s


def fit_constants(device: str, frame: pd.DataFrame) -> StreamFit:
    """Fit the three constants to the fused operators of ``device``."""
    frame = frame[frame.device == device].reset_index(drop=True)
    held = held_out(frame, ["elements"])
    chosen = [(one, rows, column) for one, rows, op, column in passes(frame) if op in _FITTED]

    def errors(constants: StreamEfficiency, part: NDArray[np.bool_]) -> NDArray[np.float64]:
        logs = []
        for one, rows, column in chosen:
            subset = frame[rows & part]
            predicted = predict(constants, device, one, subset.elements.to_numpy())
            logs.append(np.log(predicted / subset[column].to_numpy()))
        return np.concatenate(logs)

    def build(logs: NDArray[np.float64]) -> StreamEfficiency:
        share, rate, fixed = (float(value) for value in np.exp(logs))
        return StreamEfficiency(memory_share=share, elements_per_unit_s=rate, fixed_s=fixed)

    start, low, high = np.log([[0.85, 4e9, 3e-6], [0.5, 5e8, 1e-6], [0.95, 2e10, 6e-6]])
    found = least_squares(
        lambda logs: errors(build(logs), ~held), start, bounds=(low, high), loss="soft_l1", f_scale=0.1
    )
    constants = build(found.x)
    return StreamFit(
        constants=constants,
        rows=sum(int(rows.sum()) for _, rows, _ in chosen),
        fitted_error=float(np.median(np.abs(errors(constants, ~held)))),
        held_out_error=float(np.median(np.abs(errors(constants, held)))),
    )


def table_errors(
    constants: dict[str, StreamEfficiency], frame: pd.DataFrame
) -> list[tuple[str, str, str, float, float]]:
    """List (operator, direction, device, median error, bytes per element the rows imply) over the operator table."""
    lines = []
    for one, rows, op, column in passes(frame):
        subset = frame[rows]
        if subset.empty:
            continue
        device = str(subset.device.iloc[0])
        elements, measured = subset.elements.to_numpy(), subset[column].to_numpy()
        error = np.median(np.abs(np.log(predict(constants[device], device, one, elements) / measured)))
        kernel_s = one.kernels * constants[device].fixed_s
        implied = (
            np.median((measured - kernel_s) / elements) * facts(device).bytes_per_s * constants[device].memory_share
        )
        lines.append((op, column.removesuffix("_s"), device, float(error), float(implied)))
    return lines
