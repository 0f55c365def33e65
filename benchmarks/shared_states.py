"""What hybrid sharding adds to a search, and what it finds: sets of 64 replicas beside sharding over all.

    python benchmarks/shared_states.py [--out benchmarks/results] [--runs internevo.csv]

Every request is searched with ``shard=all`` and with ``shard=all,64``, one virtual stage a device. With ``--runs``,
measured runs whose optimizer a part of the replicas shares are predicted, beside those in which all of them do.
"""

import argparse
import datetime
import platform
from pathlib import Path

import numpy as np

from forerun.search import search
from forerun.search.answer.diagnosis.diagnosis import NothingFeasible
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.measured.validate import load_runs, predict

REQUESTS = (
    ("llama3-8b", "dgx-h100", 128, 256),
    ("qwen3-30b-a3b", "dgx-h100", 128, 512),
    ("llama3-8b", "dgx-h100", 256, 256),
    ("llama3-8b", "dgx-h100", 256, 1024),
    ("llama3-70b", "dgx-h100", 256, 512),
    ("qwen3-30b-a3b", "dgx-h100", 256, 512),
    ("llama3-8b", "dgx-a100-80", 512, 512),
    ("llama3-70b", "dgx-h100", 512, 512),
    ("llama3-8b", "dgx-h100", 1024, 1024),
    ("qwen3-30b-a3b", "dgx-h100", 1024, 2048),
    ("llama3-70b", "dgx-h100", 1024, 2048),
    ("llama3-8b", "dgx-h100", 2048, 4096),
    ("llama3-70b", "dgx-h100", 4096, 4096),
)
"""Model, cluster, devices, global batch; sequences of 8,192 tokens."""
FRAMEWORKS = ("megatron-lm", "nemo", "torchtitan", "fsdp", "deepspeed", "generic")
SETS = ("all", "64")


def searched(request: tuple[str, str, int, int], framework: str, sets: tuple[str, ...]) -> Leaderboard:
    """Search one request with some choices of ``shard``."""
    model, cluster, gpus, batch = request
    overrides = {"shard": list(sets), "vpp": ["1"]}
    return search(
        model,
        cluster=cluster,
        gpus=gpus,
        global_batch=batch,
        seq_len=8192,
        framework=framework,
        overrides=overrides,
        top=1,
    )


def row_of(request: tuple[str, str, int, int], framework: str) -> tuple[str, bool, float, float]:
    """Return a line of the page, whether sets were fastest, what they save of a step and what they add to a space."""
    model, cluster, gpus, _ = request
    try:
        whole, open_to_sets = (searched(request, framework, sets) for sets in (SETS[:1], SETS))
    except NothingFeasible:
        return f"| {model} | {cluster} | {gpus:,} | {framework} | | nothing fits | |", False, 0.0, 0.0
    more = open_to_sets.space.legal / whole.space.legal - 1
    best = open_to_sets.rows[0]
    saved = 1 - best.step_time_s / whole.rows[0].step_time_s
    cells = (model, cluster, f"{gpus:,}", framework, f"{more:+.0%}", best.name, f"{saved:.1%}")
    return f"| {' | '.join(cells)} |", "shard=" in best.name, saved, more


def measured(path: Path) -> list[str]:
    """Return lines on runs whose sharded states a part of the replicas shares, and on the others."""
    runs = load_runs([path])
    times = predict(runs.runs).step_time_s
    errors: dict[str, list[float]] = {"a part of the replicas": [], "all replicas": []}
    for run, step_s in zip(runs.runs, times, strict=True):
        if run.step_time_s and np.isfinite(step_s):
            kind = "a part of the replicas" if run.strategy.shard else "all replicas"
            errors[kind].append(100 * (step_s / run.step_time_s - 1))
    lines = [
        "",
        f"Runs of {path.stem}, by who shares the states:",
        "",
        "| shared by | rows | median error % | bias % |",
    ]
    lines.append("|---|---:|---:|---:|")
    for kind, found in errors.items():
        if found:
            lines.append(f"| {kind} | {len(found)} | {np.median(np.abs(found)):.1f} | {np.median(found):+.1f} |")
    return lines


def main() -> None:
    """Search, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="directory of the dated page")
    parser.add_argument("--runs", type=Path, help="table of measured runs")
    args = parser.parse_args()
    found = [(request[2], name, row_of(request, name)) for request in REQUESTS for name in FRAMEWORKS]
    summary = []
    for text, small, names in (
        ("128 and 256 devices, zero 2 or 3 in sets", True, FRAMEWORKS[2:]),
        ("512 devices and more, zero 2 or 3 in sets", False, FRAMEWORKS[2:]),
        ("128 and 256 devices, zero 1 in sets only", True, FRAMEWORKS[:2]),
        ("512 devices and more, zero 1 in sets only", False, FRAMEWORKS[:2]),
    ):
        own = [row for gpus, name, row in found if (gpus <= 256) == small and name in names]
        saved = [row[2] for row in own if row[1]]
        gain = ""
        if saved:
            gain = f", where they save {min(saved):.1%} to {max(saved):.1%} of the step (median {np.median(saved):.1%})"
        grown = f"{min(row[3] for row in own):.0%} to {max(row[3] for row in own):.0%}"
        summary.append(f"- {text}: sets are fastest in {len(saved)} of {len(own)}{gain}; {grown} more legal candidates")
    page = [
        f"# Sharded states shared by all replicas or by 64, {datetime.date.today()}",
        "",
        f"`python benchmarks/shared_states.py` on {platform.machine()}, CPython {platform.python_version()}. `more`: "
        "legal candidates that `shard=all,64` adds; `saved`: of the best step.",
        "",
        *summary,
        "",
        "| model | cluster | devices | framework | more | best | saved |",
        "|---|---|---:|---|---:|---|---:|",
        *(row[0] for _, _, row in found),
        *(measured(args.runs) if args.runs else ()),
    ]
    print("\n".join(page))
    if args.out:
        (args.out / f"{datetime.date.today()}-shared-states.md").write_text("\n".join(page) + "\n")


if __name__ == "__main__":
    main()
