"""Compare the cost rules of products and attention with those measured on an H100.

    python benchmarks/gpu/compare.py [benchmarks/measured/h100]

Prints predicted over measured seconds: the median, and the range of 80 % of the shapes. The measured times are bursts,
so that a long run takes 10 to 15 % more.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from forerun.simulator.costs.attention import attention_time_s
from forerun.simulator.costs.gemm import GemmKind, gemm_time_s
from forerun.spaces.clusters import load_device

KINDS: dict[str, GemmKind] = {"data_gradient": "data_gradient", "weight_gradient": "weight_gradient_half"}
DEVICE = load_device("h100-sxm")


def rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open() as file:
        yield from csv.DictReader(file)


def products(folder: Path) -> Iterator[tuple[str, float]]:
    """Names of kinds of products, and predicted over measured seconds of each shape."""
    for row in rows(folder / "dense.csv"):
        precision = "bf16" if row["dtype"] == "bf16" else "fp8"
        predicted = gemm_time_s(DEVICE, precision, int(row["m"]), int(row["n"]), int(row["k"]))
        yield f"dense {row['dtype']} {row['recipe']}", float(predicted) * 1e3 / float(row["ms"])
    for row in rows(folder / "grouped.csv"):
        if float(row["imbalance"]) or row["op"] == "forward_one_by_one":
            continue
        tokens, n, k = int(row["tokens_per_expert"]), int(row["n"]), int(row["k"])
        shape = {"data_gradient": (tokens, k, n), "weight_gradient": (n, k, tokens)}.get(row["op"], (tokens, n, k))
        precision, kind = ("bf16" if row["dtype"] == "bf16" else "fp8"), KINDS.get(row["op"], "forward")
        predicted = gemm_time_s(DEVICE, precision, *shape, groups=int(row["experts"]), kind=kind)
        name = f"grouped {row['dtype']} {row['op']}, {tokens} tokens an expert"
        yield name, float(predicted) * 1e3 / float(row["ms"])


def attention(folder: Path) -> Iterator[tuple[str, float]]:
    """Kernels, directions and lengths of attention, and predicted over measured seconds of each shape."""
    for row in rows(folder / "attention.csv"):
        seq, width = int(row["seq"]), int(row["head_dim"])
        for direction in ("forward", "backward"):
            predicted = attention_time_s(
                DEVICE,
                "bf16",
                kernel="flash" if row["kernel"] == "cudnn" else "flash2",
                batch=int(row["batch"]),
                heads=int(row["heads"]),
                kv_heads=int(row["kv_heads"]),
                seq_q=seq,
                seq_k=seq,
                head_dim=width,
                value_head_dim=width,
                causal=True,
                backward=direction == "backward",
            )
            length = "32k tokens and more" if seq >= 32768 else "up to 8k tokens"
            name = f"attention {row['kernel']} {direction}, {length}"
            yield name, float(predicted) * 1e3 / float(row[f"{direction}_ms"])


def main(folder: Path) -> None:
    ratios: dict[str, list[float]] = defaultdict(list)
    for name, ratio in (*products(folder), *attention(folder)):
        ratios[name].append(ratio)
    for name, values in sorted(ratios.items()):
        low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
        print(f"{name:62} {len(values):3} shapes  {middle:.2f}  ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else "benchmarks/measured/h100"))
