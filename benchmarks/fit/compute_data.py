"""Published micro-benchmarks as arrays in SI units, and the facts of the devices that they ran on."""

import functools
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from forerun.spaces.clusters.device import load_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the fit must know of a device: dense peaks in FLOP/s, bytes/s and compute units."""

    half: float
    fp8: float
    bytes_per_s: float
    units: int


@functools.cache
def facts(device: str) -> Facts:
    """Take the data-sheet figures of ``device`` from the catalogue."""
    known = load_device(device)
    return Facts(
        half=known.peak("bf16"),
        fp8=known.peak_flops_per_s.get("fp8", 0.0),
        bytes_per_s=known.memory_bytes_per_s,
        units=known.compute_units,
    )


# Names of the devices in the measured files.
AICONFIGURATOR = {
    "a100_sxm": "a100-sxm4-80",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "b300_sxm": "b300-sxm",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
ETT = {"Perlmutter": "a100-sxm4-80", "Vista": "gh200-96"}
SIMUMAX = {"A100-PCIe-80GB": "a100-pcie-80", "B200-SXM-180GB": "b200-sxm"}
AZURE = {"A100": "a100-sxm4-80", "H100": "h100-sxm", "H200": "h200-sxm"}


def held_out(frame: pd.DataFrame, columns: list[str], share: float = 0.25) -> np.ndarray:
    """Mark the same quarter of shapes on every device and in every run, by a hash of ``columns``."""
    keys = frame[columns].astype(int).astype(str).agg(",".join, axis=1)
    return np.array([zlib.crc32(key.encode()) % 1000 < 1000 * share for key in keys])


def gemm_sweep(folder: Path) -> pd.DataFrame:
    """aiconfigurator: forward products of bf16 and fp8 in bursts; fp8 includes quantising A. Rows of m >= 128."""
    frame = pd.read_csv(folder / "gemm_aiconfigurator.csv")
    frame = frame[frame.system.isin(AICONFIGURATOR) & (frame.m >= 128)]
    return pd.DataFrame(
        {
            "device": frame.system.map(AICONFIGURATOR),
            "surface": frame.dtype.map({"bf16": "half", "fp8": "fp8"}),
            "backend": frame.backend.str.split().str[0],
            "m": frame.m,
            "n": frame.n,
            "k": frame.k,
            "seconds": frame.latency_us * 1e-6,
        }
    ).reset_index(drop=True)


def gemm_linear(folder: Path) -> pd.DataFrame:
    """operators_ett: linear layers of A100 and GH200, forward and (data plus weight gradient) backward."""
    frame = pd.read_csv(folder / "operators_ett.csv")
    frame = frame[frame.op.str.fullmatch(r"linear[1-4]") & frame.m.notna()]
    return pd.DataFrame(
        {
            "device": frame.system.map(ETT),
            "m": frame.m,
            "n": frame.n,
            "k": frame.k,
            "forward_s": frame.fwd_us * 1e-6,
            "backward_s": frame.bwd_us * 1e-6,
        }
    ).reset_index(drop=True)


def gemm_training(folder: Path) -> pd.DataFrame:
    """SimuMax: products as training issues them (TN forward, NN data gradient, NT weight gradient), and grouped.

    Plain rows state the product that runs, grouped rows the layer's forward shape whatever the stage.
    """
    frame = pd.read_csv(folder / "gemm_simumax.csv")
    frame = frame[frame.kind.isin(["matmul", "group_matmul"])]
    rows = []
    for hardware, kind, shape, tflops in zip(
        frame.hardware, frame.kind, frame["shape"], frame.achieved_tflops, strict=True
    ):
        field = {name.lower(): value for name, value in re.findall(r"(\w+)=([^,]+)", shape)}
        m, n, k = (int(field[name]) for name in "mnk")
        groups = int(field.get("ng", field.get("b", 1)))
        stage = field.get("layout", field.get("stage", ""))
        product = {"TN": "forward", "fwd": "forward", "NN": "data_gradient", "bwd_grad_act": "data_gradient"}.get(stage)
        fp32 = field.get("out_dtype") == "fp32" if kind == "matmul" else field.get("main_grad_dtype") == "fp32"
        product = product or ("weight_gradient" if fp32 else "weight_gradient_half")
        seconds = 2.0 * groups * m * n * k / (tflops * 1e12)
        if kind == "group_matmul" and product != "forward":
            m, n, k = (m, k, n) if product == "data_gradient" else (n, k, m)
        rows.append((SIMUMAX[hardware], groups, product, m, n, k, seconds, kind))
    names = ["device", "groups", "product", "m", "n", "k", "seconds", "kind"]
    return pd.DataFrame(rows, columns=names)


def gemm_sustained(folder: Path) -> pd.DataFrame:
    """Azure's guide: large products after a warm-up of 10,000 launches, fp16 on A100 and fp8 on Hopper."""
    frame = pd.read_csv(folder / "gemm_mamf.csv")
    frame = frame[frame.kind == "cublasLt GEMM"]
    shape = frame["shape"].str.extract(r"m=(?P<m>\d+),n=(?P<n>\d+),k=(?P<k>\d+)").astype(int)
    device = frame.hardware.str[:4].map(AZURE)
    surface = frame.dtype.map({"fp16": "half", "fp8": "fp8"})
    seconds = 2.0 * shape.m * shape.n * shape.k / (frame.achieved_tflops * 1e12)
    return shape.assign(device=device, surface=surface, seconds=seconds).reset_index(drop=True)


def attention_forward(folder: Path) -> pd.DataFrame:
    """aiconfigurator: causal forward attention in bf16, head dimension 128."""
    frame = pd.read_csv(folder / "attention_aiconfigurator.csv")
    frame = frame[frame.system.isin(AICONFIGURATOR)]
    return pd.DataFrame(
        {
            "device": frame.system.map(AICONFIGURATOR),
            "backend": frame.backend.str.split().str[0],
            "batch": frame.batch,
            "heads": frame.heads,
            "kv_heads": frame.kv_heads,
            "seq": frame.seq,
            "head_dim": frame.head_dim,
            "value_head_dim": frame.head_dim,
            "seconds": frame.latency_us * 1e-6,
        }
    ).reset_index(drop=True)


def attention_linear(folder: Path) -> pd.DataFrame:
    """operators_ett: flash attention of A100 and GH200, not causal (the rates fit no other reading).

    The backward times of GH200 are dropped: they imply more than the peak.
    """
    frame = pd.read_csv(folder / "operators_ett.csv")
    frame = frame[frame.op == "flash_atten"]
    heads = frame.heads / frame.mp
    frame = frame[heads >= 1]
    return pd.DataFrame(
        {
            "device": frame.system.map(ETT),
            "batch": frame.batch,
            "heads": heads,
            "kv_heads": heads,
            "seq": frame.seq,
            "head_dim": frame.hidden / frame.heads,
            "value_head_dim": frame.hidden / frame.heads,
            "forward_s": frame.fwd_us * 1e-6,
            "backward_s": (frame.bwd_us * 1e-6).where(frame.system == "Perlmutter"),
        }
    ).reset_index(drop=True)


def attention_training(folder: Path) -> pd.DataFrame:
    """SimuMax: causal attention of A100 PCIe and B200; its rates count all pairs, backward 2.5 times forward."""
    frame = pd.read_csv(folder / "gemm_simumax.csv")
    frame = frame[frame.kind.isin(["sdp_fwd", "sdp_bwd"]) & frame["shape"].str.contains("qkv_contiguous=True")]
    rows = []
    for hardware, kind, shape, tflops in zip(
        frame.hardware, frame.kind, frame["shape"], frame.achieved_tflops, strict=True
    ):
        field = dict(re.findall(r"(\w+)=(\w+)", shape))
        names = ("batch", "head_num", "kv_head_num", "seq_len", "qk_head_dim", "v_head_dim")
        b, h, g, s, d, dv = (int(field[name]) for name in names)
        flops = 2.0 * b * h * s * s * (d + dv) * (2.5 if kind == "sdp_bwd" else 1.0)
        rows.append((SIMUMAX[hardware], kind == "sdp_bwd", b, h, g, s, d, dv, flops / (tflops * 1e12)))
    names = ["device", "backward", "batch", "heads", "kv_heads", "seq", "head_dim", "value_head_dim", "seconds"]
    return pd.DataFrame(rows, columns=names)


def stream(folder: Path) -> pd.DataFrame:
    """operators_ett: memory-bound operators with their number of elements."""
    frame = pd.read_csv(folder / "operators_ett.csv")
    mp = frame.mp.fillna(1.0)
    tokens = frame.batch * frame.seq
    scores = frame.batch * (frame.heads / mp) * frame.seq**2
    elements = {
        "layernorm": tokens * frame.hidden,
        "RMSlayernorm": tokens * frame.hidden,
        "res_add": tokens * frame.hidden,
        "gelu": tokens * 4 * frame.hidden / mp,
        "ScaledUpperTriangMaskedSoftmax": scores,
        "softmax": scores,
        "fillmask": scores,
        "RoPE": tokens * 2 * frame.hidden / mp,
        "embedding": tokens * frame.hidden,
        "parallel_cross_entropy_128": tokens * 50304 / mp,
    }
    parts = []
    for op, count in elements.items():
        chosen = frame.op == op
        parts.append(
            pd.DataFrame(
                {
                    "device": frame.system[chosen].map(ETT),
                    "op": op,
                    "elements": count[chosen],
                    "forward_s": frame.fwd_us[chosen] * 1e-6,
                    "backward_s": frame.bwd_us[chosen] * 1e-6,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)
