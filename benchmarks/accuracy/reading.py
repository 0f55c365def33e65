"""How measured runs are read where another publication would have written them: other words, other blanks.

    python benchmarks/accuracy/reading.py DIR [NAME ...]

DIR holds CSV files of the schema in docs/measured-runs.md. Every rewriting below (or those named) is applied to all
rows; printed are the share of rows that are still predicted, their median error and bias, and how many are read
differently and how far their predictions move. The first line is of the rows as they are.
"""

import argparse
import csv
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from targets import no_test

from forerun.search.measured.validate import RunSet, load_runs, predict

Rewriting = Callable[[dict[str, str]], None]

DEVICES = (
    {"h100-sxm": "H100 SXM5 80GB", "a100-sxm4-80": "A100-SXM4-80GB", "v100-sxm2-32": "Tesla V100-SXM2-32GB",
     "gb200-nvl72": "GB200 NVL72", "v100-sxm2-16": "V100 SXM2 16GB", "a100-sxm4-40": "A100 40GB SXM4", "t4": "Tesla T4",
     "b200-sxm": "B200 SXM", "a800-sxm4-80": "A800 80GB", "h800-sxm": "H800", "h200-sxm": "H200 SXM 141GB"},
    {"h100-sxm": "NVIDIA H100 80GB HBM3", "a100-sxm4-80": "a100-80gb", "v100-sxm2-32": "v100", "gb200-nvl72": "gb200",
     "v100-sxm2-16": "v100-16gb", "a100-sxm4-40": "a100-40gb", "t4": "NVIDIA T4", "b200-sxm": "HGX B200",
     "h800-sxm": "NVIDIA H800", "h200-sxm": "DGX H200"},
)  # fmt: skip
FRAMEWORKS = {
    "nanotron v0.5": "Nanotron (HF) 0.5", "InternEvo": "InternLM InternEvo v0.5", "Megatron-LM": "NVIDIA Megatron-LM",
    "Megatron-Bridge/NeMo": "NVIDIA NeMo (Megatron-Bridge)", "NeMo/Megatron (MLPerf)": "NVIDIA NeMo",
    "Composer/llm-foundry FSDP": "MosaicML Composer / LLM Foundry, FSDP", "PyTorch FSDP2": "torch FSDP2",
    "torchtitan FSDP2": "PyTorch TorchTitan FSDP2", "deepspeed": "Microsoft DeepSpeed", "megatron": "MCore",
    "Megatron-DeepSpeed": "Microsoft Megatron-DeepSpeed", "AA-Scaling": "Aleph Alpha scaling",
    "paddle": "PaddlePaddle PaddleNLP",
}  # fmt: skip


def words(column: str, *others: Mapping[str, str]) -> list[tuple[str, Rewriting]]:
    """Return rewritings of a column, one for each way to spell its words."""

    def rewriting(spelled: Mapping[str, str]) -> Rewriting:
        return lambda cells: cells.update({column: spelled.get(cells[column], cells[column])})

    return [(f"{column} {place}", rewriting(spelled)) for place, spelled in enumerate(others, start=1)]


def blank(*columns: str) -> tuple[str, Rewriting]:
    """Return the rewriting that leaves columns blank."""
    return f"no {', '.join(columns)}", lambda cells: cells.update(dict.fromkeys(columns, ""))


def _of_nodes(cells: dict[str, str]) -> None:
    gpus, each = (float(cells[column] or 0) for column in ("gpus", "gpus_per_node"))
    if each and gpus % each == 0:
        cells["gpus"] = f"{gpus / each:.0f}x{each:.0f}"


def _commas(cells: dict[str, str]) -> None:
    for column in ("gpus", "seq_len", "global_batch", "hidden", "ffn_hidden", "vocab"):
        if re.fullmatch(r"\d+(\.0)?", cells[column]):
            cells[column] = f"{float(cells[column]):,.0f}"


def _thousands(cells: dict[str, str]) -> None:
    tokens = float(cells["seq_len"] or 0)
    if tokens and tokens % 1024 == 0:
        cells["seq_len"] = f"{tokens / 1024:.0f}k"


def _dashes(cells: dict[str, str]) -> None:
    cells.update({column: "-" for column in ("cp", "ep", "attention", "zero_stage", "recompute") if not cells[column]})


REWRITINGS: dict[str, Rewriting] = dict(
    [
        *words("device", *DEVICES),
        *words("framework", FRAMEWORKS),
        *words("precision", {"bf16": "bfloat16", "fp16": "float16", "fp8": "FP8-CS", "mxfp8": "fp8_mx", "nvfp4": "fp4"},
               {"bf16": "bf16-mixed", "fp16": "FP16 mixed", "fp8": "FP8 (delayed scaling)", "fp32": "float"}),
        *words("recompute", {"none": "off", "full": "full uniform", "selective": "Selective"},
               {"none": "False", "full": "activation checkpointing", "selective": "core_attn"}),
        *words("zero_stage", {"0": "none", "1": "ZeRO-1", "2": "ZeRO-2", "3": "FSDP"},
               {"0": "False", "1": "distributed optimizer", "2": "zero2", "3": "ZeRO 3"}),
        *words("schedule", {"1f1b": "1F1B (non-interleaved)", "interleaved": "1F1B interleaved", "gpipe": "GPipe"},
               {"1f1b": "PipeDream-Flush", "interleaved": "Interleaved", "gpipe": "fill-drain", "grad-accum": "none"}),
        *words("attention", {"flash": "FlashAttention-2", "fused_softmax": "fused softmax", "unfused": "eager"},
               {"flash": "flash-attn 2.5", "fused_softmax": "fused", "unfused": "math"}),
        *words("sequence_parallel", {"0": "False", "1": "True"}, {"0": "off", "1": "on"}),
        *words("gated_mlp", {"0": "no", "1": "yes"}),
        *words("outcome", {"ok": "OK", "oom": "OOM", "failed": "error"}),
        ("nodes x devices", _of_nodes), ("commas", _commas), ("thousands of tokens", _thousands), ("dashes", _dashes),
        *map(blank, ("dp", "gpus", "zero_stage", "sequence_parallel", "recompute", "kv_heads", "vocab", "ffn_hidden",
                     "gated_mlp", "heads", "attention", "notes", "source", "framework", "precision")),
        blank("zero_stage", "sequence_parallel", "recompute"),
        blank("gpus_per_node", "intra_link", "nic_gbit_per_node"),
        blank("cp", "ep", "virtual_pp", "schedule"), blank("source", "notes"),
    ]
)  # fmt: skip


def main() -> None:
    """Rewrite, predict and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(REWRITINGS)}")
    args = parser.parse_args()
    tables = {path.name: list(csv.DictReader(path.open())) for path in sorted(args.folder.glob("*.csv"))}
    known = rewritten(tables, lambda cells: None)
    time_s = dict(zip((run.run_id for run in known.runs), predict(known.runs).step_time_s, strict=True))
    runs = {run.run_id: run for run in known.runs if run.step_time_s and run.outcome == "ok" and no_test(run)}
    print("rewriting, covered %, median error %, bias %, read differently, moved %, reasons of those not covered")
    print(_line("as they are", {name: time_s[name] / (run.step_time_s or 1) for name, run in runs.items()}, len(runs)))
    for name in args.names or REWRITINGS:
        found = rewritten(tables, REWRITINGS[name])
        others = [run for run in found.runs if run.run_id in runs]
        same = [run.context == runs[run.run_id].context and run.strategy == runs[run.run_id].strategy for run in others]
        changed = [run for run, equal in zip(others, same, strict=True) if not equal]
        now = time_s | dict(zip((run.run_id for run in changed), predict(changed).step_time_s, strict=True))
        ratios = {run.run_id: now[run.run_id] / (run.step_time_s or 1) for run in others}
        moved = [abs(now[run.run_id] / time_s[run.run_id] - 1) for run in changed]
        why = Counter(one.reason for one in found.skipped if one.run_id in runs).most_common(2)
        shown = (
            f", {len(moved)}, {100 * np.median(moved) if moved else 0:.1f}, {'; '.join(reason for reason, _ in why)}"
        )
        print(_line(name, ratios, len(runs)) + shown, flush=True)


def _line(name: str, ratios: Mapping[str, float], total: int) -> str:
    error = 100 * (np.array(list(ratios.values())) - 1)
    return f"{name}, {100 * len(error) / total:.1f}, {np.median(abs(error)):.1f}, {np.median(error):+.1f}"


def rewritten(tables: Mapping[str, list[dict[str, str]]], change: Rewriting) -> RunSet:
    """Return tables as they are read once all their rows are changed."""
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in tables.items():
            with (Path(folder) / name).open("w", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                for row in rows:
                    cells = dict(row)
                    change(cells)
                    writer.writerow(cells)
        return load_runs(sorted(Path(folder).glob("*.csv")))


if __name__ == "__main__":
    main()
