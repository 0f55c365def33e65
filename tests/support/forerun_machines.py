"""A machine whose constants differ from the catalogue's in a known way, and runs measured on it."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from forerun_examples import dense_model, request

from forerun.simulator import score
from forerun.simulator.calibration import FittedRun, calibrated
from forerun.spaces.strategies import Context, Strategy, table_of

COLUMNS = (
    "run_id,device,gpus,model,layers,hidden,ffn_hidden,heads,kv_heads,vocab,gated_mlp,seq_len,precision,framework,"
    "dp,tp,pp,micro_batch,global_batch,zero_stage,sequence_parallel,recompute,step_time_s,outcome,nic_gbit_per_node,"
    "peak_mem_gib,memory_kind"
).split(",")


def some_strategies(gpus: int = 16) -> list[Strategy]:
    """Return splits of a few devices that use every link and much of the host."""
    found = []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2):
            for mbs in (1, 2, 4):
                dp = gpus // (tp * pp)
                if not dp:
                    continue
                found.append(Strategy(dp=dp, tp=tp, pp=pp, mbs=mbs, zero=int(dp > 1), sp=tp > 1))
    return found


def machine_context() -> Context:
    """Return a request of 2B parameters or so: its devices have more to do than its host."""
    return request(dense_model(layers=24, heads=40, kv_heads=40), framework="nanotron", global_batch=128)


def times_of(context: Context, strategies: Sequence[Strategy]) -> list[float]:
    """Return predicted step times."""
    return [float(value) for value in score(context, table_of(strategies)).step_time_s]


def measured_on(
    context: Context, strategies: Sequence[Strategy], truth: Mapping[str, float], *, noise: float = 0.0, seed: int = 0
) -> list[FittedRun]:
    """Return runs as a machine with constants ``truth`` (in ``z``) would measure them, with relative ``noise``."""
    times = times_of(calibrated(context, truth), strategies)
    errors = np.random.default_rng(seed).normal(0.0, noise or 1e-12, len(times))
    return [
        FittedRun(context=context, strategy=strategy, step_time_s=time * float(np.exp(error)))
        for strategy, time, error in zip(strategies, times, errors, strict=True)
    ]


def write_runs(
    path: Path, *, faster: float = 1.0, fuller: float | None = None, count: int = 12, first: int = 0, **changes: str
) -> Path:
    """Write a table of runs that take ``1 / faster`` of what the catalogue says, and return its path; ``fuller``: with
    a peak of device memory so many times what it says."""
    from forerun.search.measured.validate import load_runs, predict

    lines = []
    for number, s in enumerate(some_strategies(8)[first : first + count], start=first):
        cells = dict.fromkeys(COLUMNS, "") | {
            "run_id": f"lab-{number:04}",
            "device": "h100-sxm",
            "gpus": str(s.devices),
            "model": "ours",
            "layers": "24",
            "hidden": "2048",
            "ffn_hidden": "5632",
            "heads": "16",
            "kv_heads": "16",
            "vocab": "32000",
            "gated_mlp": "1",
            "seq_len": "2048",
            "precision": "bf16",
            "framework": "megatron-lm",
            "dp": str(s.dp),
            "tp": str(s.tp),
            "pp": str(s.pp),
            "micro_batch": str(s.mbs),
            "global_batch": "64",
            "zero_stage": str(s.zero),
            "sequence_parallel": str(int(s.sp)),
            "recompute": "none",
            "step_time_s": "1000",
            "outcome": "ok",
        }
        lines.append(cells | changes)
    _write(path, lines)
    predicted = predict(load_runs([path]).runs)
    for cells, seconds, peak in zip(lines, predicted.step_time_s, predicted.peak_memory_bytes, strict=True):
        cells["step_time_s"] = repr(float(seconds) / faster)
        if fuller is not None:
            cells |= {"peak_mem_gib": repr(fuller * float(peak) / 2**30), "memory_kind": "device"}
    _write(path, lines)
    return path


def _write(path: Path, lines: Sequence[Mapping[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, fieldnames=COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
