"""Large inputs, made up: measured runs, leaderboards, traces of ranks, plans of sweeps."""

import csv
import json
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.sample import SEARCH, quiet

COLUMNS = (
    "run_id,device,gpus,model,layers,hidden,ffn_hidden,heads,vocab,gated_mlp,seq_len,precision,framework,dp,tp,pp,"
    "micro_batch,global_batch,recompute,step_time_s,peak_mem_gib,outcome"
).split(",")


def measured_runs(path: Path, count: int) -> None:
    """Write a table of runs of fifty models on 8 to 64 devices."""
    random = Random(1)
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for number in range(count):
            gpus, tp = random.choice((8, 16, 32, 64)), random.choice((1, 2, 4, 8))
            pp = random.choice([depth for depth in (1, 2, 4) if tp * depth <= gpus])
            dp, mbs = gpus // tp // pp, random.choice((1, 2, 4))
            shape = (f"ours-{number % 50}", 32, 4096, 11008, 32, 32000, 1, random.choice((1024, 2048, 4096)))
            how = ("bf16", "megatron-lm", dp, tp, pp, mbs, dp * mbs * random.choice((4, 8, 16)))
            result = (f"{random.uniform(1, 30):.3f}", f"{random.uniform(10, 79):.2f}", "ok")
            recompute = random.choice(("none", "full"))
            table.writerow([f"lab-{number}", "a100-sxm4-80", gpus, *shape, *how, recompute, *result])


def leaderboard(folder: Path, count: int) -> None:
    """Write a run folder whose leaderboard has so many rows: those of a search, over and over, each a bit slower."""
    quiet(f"{SEARCH.replace('--top 3', '--top 500')} --all-variants --out {folder}")
    path = folder / "leaderboard.json"
    board = json.loads(path.read_text())
    rows = board["leaderboard"]
    board["leaderboard"] = [
        {**rows[place % len(rows)], "rank": place + 1, "step_time_s": rows[-1]["step_time_s"] * (1 + place / count)}
        for place in range(count)
    ]
    path.write_text(json.dumps(board))


def plan(path: Path, count: int) -> None:
    """Write the plan of so many searches, each small."""
    batches = ", ".join(f"{{global_batch: {8 * number}, seq_len: 512}}" for number in range(1, count // 2 + 1))
    path.write_text(
        f"models: [qwen3-0.6b]\nclusters: [dgx-h100, dgx-a100-80]\nworkloads: [{batches}]\nbudgets: [{{gpus: 8}}]\n"
        "top: 1\naxes: {tp: [1, 2], pp: [1], cp: [1], mbs: [1], zero: [1], recompute: [none]}\n"
    )


def rank_traces(folder: Path, ranks: int, megabytes: int) -> None:
    """Write a trace per rank, as PyTorch's profiler does: launches, kernels and reductions of all ranks together."""
    folder.mkdir()
    kernels = megabytes * 2**20 // 5 // _BYTES_OF_A_KERNEL  # in each of five steps
    for rank in range(ranks):
        head: dict[str, Any] = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
            "deviceProperties": [{"id": rank, "name": "NVIDIA H100 80GB HBM3"}],
        }
        with (folder / f"rank{rank}.json").open("w") as file:
            file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
            file.write(
                ",\n".join(json.dumps(event) for step in range(5) for event in _step(rank, ranks, step, kernels))
            )
            file.write("\n]}\n")


_BYTES_OF_A_KERNEL = 620
"""Of the launch and the kernel together, as written here."""


def _step(rank: int, ranks: int, step: int, kernels: int) -> list[dict[str, Any]]:
    """Return the events of a step: a launch and a kernel of 10 us each, and a reduction after every hundred."""
    begin, slot = 20.0 * kernels * step + 3.0 * rank, 15.0
    found = [_event("user_annotation", f"ProfilerStep#{step}", 1, 1, begin, slot * kernels + 200, {})]
    for number in range(kernels):
        at, link = begin + slot * number, step * kernels + number + 1
        found.append(_event("cuda_runtime", "cudaLaunchKernel", 1, 1, at, 4.0,
                            {"correlation": link, "External id": link, "cbid": 211}))  # fmt: skip
        if number % 100 == 99:
            name, stream, more = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, {
                "Collective name": "allreduce", "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20,
                "dtype": "BFloat16", "Group size": ranks, "Process Group Name": "0",
                "Process Group Ranks": json.dumps(list(range(ranks))),
            }  # fmt: skip
        else:
            name, stream, more = f"sm90_xmma_gemm_bf16bf16_tilesize128x128x64_{number % 40}", 7, {"registers": 168}
        found.append(_event("kernel", name, rank, stream, at + 6, 8.0, {
            "correlation": link, "External id": link, "stream": stream, "device": rank, "grid": [64, 4, 1],
            "block": [384, 1, 1], "est. achieved occupancy %": 19, **more,
        }))  # fmt: skip
    return found


def _event(
    kind: str, name: str, process: int, thread: int, at: float, took: float, more: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": kind, "name": name, "pid": process, "tid": thread, "ts": round(at, 3), "dur": took,
        "args": more,
    }  # fmt: skip
