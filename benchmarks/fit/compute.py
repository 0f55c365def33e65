"""Fit the compute constants to published micro-benchmarks: ``python -m benchmarks.fit.compute DIR``.

DIR holds the ``microbenchmarks`` files named in ``compute_data``. Writes ``simulator/costs/data/compute.yaml`` and
prints, per device, the median error on the shapes that were fitted, on the quarter that was held out, and of the
constants of a neighbouring device. Takes about a minute on one core.
"""

import argparse
import datetime
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.fit import compute_attention, compute_data, compute_gemm, compute_stream, compute_systolic
from benchmarks.fit.compute_write import write_yaml
from forerun.simulator.costs.attention import SUSTAINED_EXPONENT
from forerun.simulator.costs.efficiency import TILE_CLASSES, AttentionEfficiency, GemmEfficiency, StreamEfficiency
from forerun.spaces.clusters.device import load_device

TARGET = Path(__file__).parents[2] / "simulator" / "costs" / "data" / "compute.yaml"

DEVICES = tuple(dict.fromkeys(compute_data.AICONFIGURATOR.values()))

# Rate under sustained load over rate in a burst, for matrix products of 16 and of 8 bits. Measured ones are recomputed
# and printed by ``_print_sustained``; the choice among them, and the devices nobody measured, are explained here. Whole
# training runs that hardly communicate spend 0.90 to 0.97 of their time in the compute that these values predict.
_AMPERE = "Azure guide after 10,000 launches: 0.92; whole runs of eight of nine tables ask for 0.88 to 0.90"
_HOPPER = (
    "8 bit: Azure guide after 10,000 launches, 0.89 on H100 and on H200; half: bf16 runs of flagperf, llm_foundry and "
    "jeanzay_sft_fsdp ask for 0.77 to 0.83, the nanotron sweep for 0.84"
)
_BLACKWELL_8BIT = "8 bit: MLPerf and Megatron-Bridge runs of Llama 8B and 70B leave no more than 12 % for throttling"
SUSTAINED_CLOCK = {
    "a100-sxm4-80": ({"half": 0.90}, _AMPERE),
    "a100-pcie-80": ({"half": 0.865}, "SimuMax against the A100 SXM burst"),
    "h100-sxm": ({"half": 0.82, "fp8": 0.88}, _HOPPER),
    "h200-sxm": ({"half": 0.82, "fp8": 0.88}, _HOPPER),
    "b200-sxm": (
        {"half": 0.71, "fp8": 0.88},
        f"half: SimuMax, 0.95 for products under 0.2 ms and 0.70 above 1 ms; {_BLACKWELL_8BIT}",
    ),
    "b300-sxm": ({"half": 0.71, "fp8": 0.88}, f"half: assumed as B200; {_BLACKWELL_8BIT}"),
    "gb200-nvl72": ({"half": 0.80, "fp8": 0.88}, f"half: assumed, 1,200 W instead of 1,000 W; {_BLACKWELL_8BIT}"),
    "gb300-nvl72": ({"half": 0.80, "fp8": 0.88}, f"half: assumed, 1,400 W instead of 1,000 W; {_BLACKWELL_8BIT}"),
    "l40s": ({"half": 0.90, "fp8": 0.90}, "assumed"),
    "rtx-pro-6000": ({"half": 0.92, "fp8": 0.92}, "assumed as A100"),
}

# The same for devices that borrow the rest. T4: what the runs of amp leave; alone, products at 70 W fall to 0.5 of the
# burst (Jia et al., "Dissecting the NVIDIA Turing T4 GPU via Microbenchmarking", 2019), but most of a layer waits for
# memory, which needs less power. V100: runs of dlperf_gpt, libai and bigscience ask for 0.74 to 0.80.
# Architectures: CDNA 2 under Megatron-DeepSpeed (128 GPUs) asks for 0.58, CDNA 3 under torchtitan for 0.61, of ceilings
# that a search found; Da Vinci 910B under MindSpeed for 0.85 to 1.0 of a ceiling that is itself an assumption.
BORROWED_CLOCK = {
    "t4": {"half": 0.73},
    "v100-sxm2-16": {"half": 0.77},
    "v100-sxm2-32": {"half": 0.77},
    "cdna": {"half": 0.60, "fp8": 0.64},
    "da vinci": {"half": 0.95},
}

# Elements of the head dimension that the exponentials of a score cost. Published kernels, forward, 16k tokens:
# FlashAttention-3 figure 5, 497 / 648 / 756 TFLOP/s at head dimension 64 / 128 / 256 on H100.
HEAD_DIM_RAMP = {"forward": 56.0, "backward": 100.0}

# Backward over forward speed where no backward was measured: FlashAttention-3 figures 5 and 6, causal, 16k tokens,
# head dimension 128 (H100); the A100 fit (L40S, RTX).
BACKWARD_RATIO = {"h100-sxm": 0.84, "h200-sxm": 0.84, "l40s": 0.80, "rtx-pro-6000": 0.80}

# FlashAttention 2 over the best kernel. Hopper: GH200 rows of operators_ett over the fitted H100 surface. Blackwell:
# assumed, the absolute speed it has on Hopper.
FLASH2_SHARE = {"h": 0.59, "b": 0.40, "g": 0.40}

# Whose constants an architecture borrows; the longest name that matches counts.
_ARCHITECTURES = {
    "kepler": "a100-sxm4-80",
    "pascal": "a100-sxm4-80",
    "volta": "a100-sxm4-80",
    "turing": "a100-sxm4-80",
    "ampere": "a100-sxm4-80",
    "ada": "l40s",
    "hopper": "h100-sxm",
    "blackwell": "b200-sxm",
    "blackwell ultra": "b300-sxm",
    "blackwell sm120": "rtx-pro-6000",
    "tpu": "tpu-v5e",
    "tpu v6": "tpu-v6e",
    "tpu v7": "tpu-v6e",
    "other": "h100-sxm",
}


def fit_gemm(folder: Path) -> tuple[dict[tuple[str, str], compute_gemm.GemmFit], dict[str, dict[str, float]]]:
    """Fit all surfaces, and what training adds to them on the devices where it was measured."""
    sweep = compute_data.gemm_sweep(folder)
    # cuBLAS, which Transformer Engine calls; the other backend runs a CUTLASS kernel of its own in fp8.
    sweep = sweep[(sweep.surface == "half") | (sweep.backend == "trtllm")].reset_index(drop=True)
    fits = {
        (str(device), str(surface)): compute_gemm.fit_surface(str(device), rows, fp8=surface == "fp8")
        for (device, surface), rows in sweep.groupby(["device", "surface"])
    }
    training = compute_data.gemm_training(folder)
    shares = {}
    for device, lender in (("a100-pcie-80", "a100-sxm4-80"), ("b200-sxm", "b200-sxm")):
        rows = training[training.device == device]
        shares[device] = compute_gemm.training_shares(fits[lender, "half"].surface, device, rows)
    print("\nneighbour's constants, level apart: median error of bf16 products of training size")
    for device, lender in (
        ("h200-sxm", "h100-sxm"),
        ("gb200-nvl72", "b200-sxm"),
        ("b300-sxm", "b200-sxm"),
        ("h100-sxm", "a100-sxm4-80"),
    ):
        rows = sweep[(sweep.device == device) & (sweep.surface == "half")]
        error = compute_gemm.generalises(fits[lender, "half"].surface, device, rows)
        print(f"  {device:14} from {lender:14} {error:6.1%}")
    _print_sustained(folder, fits, shares)
    return fits, shares


def _print_sustained(
    folder: Path, fits: dict[tuple[str, str], compute_gemm.GemmFit], shares: dict[str, dict[str, float]]
) -> None:
    print("\nsustained over burst")
    for (device, surface), rows in compute_data.gemm_sustained(folder).groupby(["device", "surface"]):
        fitted = fits[str(device), str(surface)].surface
        ratio = compute_gemm.sustained_ratio(fitted, str(device), rows, fp8=surface == "fp8")
        print(f"  {device:14} {surface:5} {ratio:.3f}  Azure guide")
    for device, found in shares.items():
        print(f"  {device:14} half  " + "  ".join(f"{name} {value:.3f}" for name, value in found.items()))
    linear = compute_data.gemm_linear(folder)
    for device, lender in (("a100-sxm4-80", "a100-sxm4-80"), ("gh200-96", "h100-sxm")):
        rows = linear[linear.device == device]
        share, error = compute_gemm.gradient_share_of_linears(fits[lender, "half"].surface, device, rows)
        print(f"  {device:14} gradients over forward {share:.3f}, median error {error:.1%}  operators_ett")


def fit_attention(folder: Path) -> dict[tuple[str, str], compute_attention.AttentionFit]:
    """Fit forward and backward surfaces; rows of training kernels weigh as much as the larger serving sweep."""
    serving = compute_attention.direction(compute_data.attention_forward(folder), "seconds", causal=True)
    serving = serving[serving.backend == "vllm"]
    eager = compute_data.attention_linear(folder)
    training = compute_data.attention_training(folder).assign(causal=True)
    training["device"] = training.device.replace("a100-pcie-80", "a100-sxm4-80")
    fits = {}
    for device in DEVICES:
        own = eager[eager.device == device]
        rows = {
            "forward": [
                serving[serving.device == device],
                compute_attention.direction(own, "forward_s", causal=False, weight=3.0),
                training[(training.device == device) & ~training.backward].assign(weight=20.0),
            ],
            "backward": [
                compute_attention.direction(own, "backward_s", causal=False),
                training[(training.device == device) & training.backward].assign(weight=8.0),
            ],
        }
        share = FLASH2_SHARE.get(device[0], 1.0)
        for name, parts in rows.items():
            frame = (
                pd.concat([part for part in parts if len(part)], ignore_index=True) if any(map(len, parts)) else None
            )
            if frame is not None:
                ramp = None if device == "a100-sxm4-80" else HEAD_DIM_RAMP[name] if share < 1 else 25.0
                fits[device, name] = compute_attention.fit_surface(
                    device, frame, backward=name == "backward", head_dim_ramp=ramp, flash2_share=share
                )
    return fits


def attention_entries(
    fits: dict[tuple[str, str], compute_attention.AttentionFit], device: str
) -> tuple[AttentionEfficiency, AttentionEfficiency]:
    """Return the forward and backward constants of ``device``, deriving a backward that nobody measured."""
    forward = fits[device, "forward"].surface
    if (device, "backward") in fits:
        return forward, fits[device, "backward"].surface
    donor = "a100-sxm4-80" if forward.flash2_share == 1.0 else "b200-sxm"
    theirs = fits[donor, "backward"].surface
    ratio = BACKWARD_RATIO.get(device, theirs.peak_share / fits[donor, "forward"].surface.peak_share)
    return forward, compute_attention.derived_backward(forward, theirs, ratio, relative=device in BACKWARD_RATIO)


def attention_levels(
    folder: Path, fits: dict[tuple[str, str], compute_attention.AttentionFit], device: str, lender: str
) -> tuple[AttentionEfficiency, AttentionEfficiency]:
    """Return a lender's constants at the level that training kernels reach on ``device`` itself. What its clock loses
    under load is in those measurements, so that it is taken out of the share."""
    rows = compute_data.attention_training(folder).assign(causal=True)
    rows = rows[rows.device == device]
    slowed = SUSTAINED_CLOCK[device][0]["half"] ** SUSTAINED_EXPONENT
    found = []
    for surface, backward in zip(attention_entries(fits, lender), (False, True), strict=True):
        level = compute_attention.level(surface, device, rows[rows.backward == backward], backward=backward)
        found.append(replace(surface, peak_share=surface.peak_share * level / slowed))
    return found[0], found[1]


def main() -> None:
    """Fit, print the tables and write the constants."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the micro-benchmark files")
    parser.add_argument("--out", type=Path, default=TARGET)
    arguments = parser.parse_args()
    gemm, shares = fit_gemm(arguments.folder)
    attention = fit_attention(arguments.folder)
    frame = compute_data.stream(arguments.folder)
    stream = {device: compute_stream.fit_constants(device, frame) for device in ("a100-sxm4-80", "gh200-96")}
    print("\nrows, fitted, held out, held out p90: attention of 1,024 tokens and more, products of training size")
    for (device, name), fit in {**attention, **gemm}.items():
        errors = f"{fit.fitted_error:6.1%} {fit.held_out_error:6.1%} {fit.held_out_p90:6.1%}"
        print(f"  {device:14} {name:8} {fit.rows:5} {errors}")
    print("\nmemory-bound operators: rows, fitted, held out")
    for device, kept in stream.items():
        print(f"  {device:14} {kept.rows:5} {kept.fitted_error:6.1%} {kept.held_out_error:6.1%}")
    print("\noperator table: median error, bytes per element that the rows imply")
    for line in compute_stream.table_errors({name: kept.constants for name, kept in stream.items()}, frame):
        print("  {:32} {:9} {:14} {:6.1%} {:7.1f}".format(*line))
    leveled = attention_levels(arguments.folder, attention, "a100-pcie-80", "a100-sxm4-80")
    write_yaml(arguments.out, _document(gemm, shares, attention, leveled, stream))


def _document(
    gemm: dict[tuple[str, str], compute_gemm.GemmFit],
    shares: dict[str, dict[str, float]],
    attention: dict[tuple[str, str], compute_attention.AttentionFit],
    leveled: tuple[AttentionEfficiency, AttentionEfficiency],
    stream: dict[str, compute_stream.StreamFit],
) -> dict[str, Any]:
    devices = {}
    for device in (*DEVICES, "a100-pcie-80"):
        lender = "a100-sxm4-80" if device == "a100-pcie-80" else device
        known = load_device(device)
        surfaces = {name: fit for (owner, name), fit in gemm.items() if owner == lender}
        forward, backward = attention_entries(attention, lender) if device == lender else leveled
        rows = sum(fit.rows for fit in surfaces.values()) + attention[lender, "forward"].rows
        clock, why = SUSTAINED_CLOCK[device]
        devices[device] = {
            "provenance": f"fitted to {rows:,} measurements on {load_device(lender).title}",
            "matmul_ceiling": known.matmul_ceiling["bf16"],
            "memory_efficiency": known.memory_efficiency,
            "sustained_clock": clock,
            "sustained_clock_source": why,
            "held_out_error": {
                **{f"gemm_{name}": fit.held_out_error for name, fit in surfaces.items()},
                "attention_forward": attention[lender, "forward"].held_out_error,
            },
            "gemm": {name: _gemm_entry(_with_training(fit.surface, lender, shares)) for name, fit in surfaces.items()},
            "attention_forward": forward,
            "attention_backward": backward,
            "stream": _stream_entry(device, stream, known.memory_efficiency),
        }
    sources = "aiconfigurator, estimate-train-time (operators_ett), SimuMax and the Azure AI benchmarking guide"
    return {
        "source": f"benchmarks/fit/compute.py on {sources}",
        "date": datetime.date.today().isoformat(),
        "architectures": _ARCHITECTURES,
        "sustained_clocks": BORROWED_CLOCK,
        "devices": devices | compute_systolic.entries(),
    }


def _with_training(surface: GemmEfficiency, device: str, shares: dict[str, dict[str, float]]) -> GemmEfficiency:
    """Add the gradients and groups that SimuMax measured: A100's, B200's, or the mean of both for other devices."""
    if device.startswith("a100"):
        measured = [shares["a100-pcie-80"]]
    elif device.startswith(("b", "g")):
        measured = [shares["b200-sxm"]]
    else:
        measured = list(shares.values())

    def mean(name: str) -> float:
        return min(1.0, sum(found[name] / found["forward"] for found in measured) / len(measured))

    grouped = sum(found["grouped"] for found in measured) / len(measured)
    return compute_gemm.with_shares(
        surface, data=mean("data_gradient"), weight=mean("weight_gradient"), grouped=min(1.0, grouped)
    )


def _gemm_entry(surface: GemmEfficiency) -> dict[str, Any]:
    values = asdict(surface)
    shares = {(rows, columns): share for rows, columns, share in values.pop("tiles")}
    return {**values, "tile_shares": [shares[shapes[0]] for shapes in TILE_CLASSES]}


def _stream_entry(
    device: str, stream: dict[str, compute_stream.StreamFit], memory_efficiency: float
) -> StreamEfficiency:
    """Return the constants of ``device``; elsewhere the bandwidth share of the catalogue and Hopper's kernels."""
    if device.startswith("a100"):
        return stream["a100-sxm4-80"].constants
    hopper = stream["gh200-96"].constants
    return StreamEfficiency(
        memory_share=memory_efficiency, elements_per_unit_s=hopper.elements_per_unit_s, fixed_s=hopper.fixed_s
    )


if __name__ == "__main__":
    main()
