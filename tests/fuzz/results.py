"""What forerun writes and reads again, and what was measured."""

import csv
import io
import json
from pathlib import Path

import yaml

from tests.fuzz.sample import REQUEST, SEARCH, STRATEGY, Sample, quiet


def results(folder: Path) -> list[Sample]:
    """Return leaderboards, sweeps, studies and trees; ``folder`` takes them."""
    run, sweep, stored = folder / "run", folder / "sweep", folder / "studies.log"
    quiet(f"{SEARCH} --out {run}")
    board = json.loads((run / "leaderboard.json").read_text())
    plan = folder / "plan.yaml"
    plan.write_text("models: [llama3-8b]\nclusters: [dgx-h100]\nworkloads: [{global_batch: 16, seq_len: 512}]\n"
                    "budgets: [{gpus: 8}, {gpus: 16}]\ntop: 3\naxes: {tp: [2], pp: [1], mbs: [1]}\n")  # fmt: skip
    quiet(f"sweep {plan} --out {sweep} --workers serial")
    lines = [json.loads(line) for line in (sweep / "pieces.jsonl").read_text().splitlines()]
    sampled = f"{SEARCH} --sampler local --per-stage layers --evaluations 10"
    optuna = f"{SEARCH} --sampler local --per-stage layers --evaluations 5 --storage"
    quiet(f"{optuna} {stored}")
    resumed = f"sweep {plan} --out {{folder}} --resume --workers serial"
    tree = folder / "tree.yaml"
    quiet(f"simulate llama3-8b {REQUEST} --write-tree {tree} --strategy", STRATEGY)
    trees = f"simulate llama3-8b {REQUEST} --tree {{}}"
    return [
        Sample(name="leaderboard.json", content=board, command="report {folder}"),
        Sample(name="leaderboard.json", content=board, command="export {folder} --format all --out {folder}/out"),
        Sample(name="leaderboard.json", content=board, command=f"{sampled} --start {{}}"),
        Sample(name="pieces.jsonl", content=lines, command=resumed, beside=sweep),
        Sample(name="leaderboard.json", content=json.loads((sweep / "leaderboard.json").read_text()),
               command="report {folder}", beside=sweep),
        Sample(name="pieces.jsonl", content=lines, command="report {folder}", beside=sweep),
        Sample(
            name="sweep.json",
            content=json.loads((sweep / "sweep.json").read_text()),
            command=resumed,
            beside=sweep,
        ),
        Sample(name="studies.log", content=[json.loads(line) for line in stored.read_text().splitlines()],
               command=f"{optuna} {{}}"),
        Sample(name="tree.yaml", content=yaml.safe_load(tree.read_text()), command=trees),
        Sample(name="tree.yaml", content=tree.read_text(), command=trees),
    ]  # fmt: skip


def measured(folder: Path) -> list[Sample]:
    """Return measured runs, calibrations, profiles and the output of nccl-tests."""
    columns = ("run_id,device,gpus,model,layers,hidden,ffn_hidden,heads,vocab,gated_mlp,seq_len,precision,framework,"
               "dp,tp,pp,micro_batch,global_batch,recompute,step_time_s,peak_mem_gib,outcome").split(",")  # fmt: skip
    rows = [
        f"lab-{number},a100-sxm4-80,8,ours-7b,32,4096,11008,32,32000,1,2048,bf16,megatron-lm,"
        f"{8 // tp},{tp},1,{mbs},64,none,{2 + number},40,ok"
        for number, (tp, mbs) in enumerate(((1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (4, 2)))
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *(row.split(",") for row in rows)])
    runs = folder / "runs.csv"
    runs.write_text(text.getvalue())
    calibration = folder / "calibration.yaml"
    quiet(f"calibrate {runs} --out {calibration}")
    simulate = "simulate llama3-8b --cluster dgx-a100-80 --global-batch 16 --seq-len 512 --framework megatron-lm"
    calibrated = f"{simulate} --calibration {{}} --strategy@tp2 dp4 mbs1"
    profile = {
        "profile": 1, "device": "a100-sxm4-80", "made": {}, "skipped": {},
        "operators": {"matmul bf16": [[1024, 1024, 1024, 1e-5, 0.1, 1e-5], [4096, 4096, 4096, 1e-3, 0.1, 1e-3]]},
        "collectives": {"all_reduce node": [[1000000, 8, 1, 1e-4, 0.1, 1e-4], [100000000, 8, 1, 1e-2, 0.1, 1e-2]]},
    }  # fmt: skip
    nccl = (
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728\n# Collective test starting: all_reduce_perf\n"
        + "".join(f"#  Rank  {rank} Group  0 Pid  1 on  host0 device  {rank} [0x1b] H100\n" for rank in range(8))
        + "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
        + "".join(f"  {size}  {size // 4}  float  sum  -1  {20 + size / 1e4:.2f} 1.0 1.5 0 {size / 1e3:.2f} 1.0 1.5 0\n"
                  for size in (1024, 1048576, 134217728))
    )  # fmt: skip
    measured = {
        "config": {"ngpus": 8, "nthreads": 1, "devices": [{"hostname": "host0"}] * 8},
        "args": ["./all_reduce_perf"],
        "results": [{"size": size, "out_of_place": {"time": size / 1e4}} for size in (1024, 2**20)],
    }  # fmt: skip
    take = f"profile llama3-8b {REQUEST} --only collectives --nccl-tests {{}} --out {{folder}}/out.yaml"
    return [
        Sample(name="runs.csv", content=text.getvalue(), command="validate {} --worst 3"),
        Sample(name="runs.csv", content=text.getvalue(), command="validate {} --json"),
        Sample(name="runs.csv", content=text.getvalue(), command="calibrate {} --out {folder}/out.yaml"),
        Sample(name="calibration.yaml", content=yaml.safe_load(calibration.read_text()), command=calibrated),
        Sample(name="profile.yaml", content=profile, command=f"{simulate} --profile {{}} --strategy@tp2 dp4 mbs1"),
        Sample(name="profile.yaml", content=profile,
               command=f"{SEARCH.replace('dgx-h100', 'dgx-a100-80')} --profile {{}}"),
        Sample(name="all_reduce_perf.txt", content=nccl, command=take),
        Sample(name="all_reduce_perf.json", content=measured, command=take),
    ]  # fmt: skip
