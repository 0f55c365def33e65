"""Speed of strategy trees: from the text of a tree to the finished step, by part, for Proteus' cases and larger ones.

    python benchmarks/trees.py [--repeat N] [--out FILE.md]

Each time is the best of N runs in one process, in seconds of the processor.
"""

import argparse
import datetime
import json
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search.layered import LayeredRequest, resolve_request
from forerun.search.request import Request, resolve
from forerun.simulator.events.layered import layered_plan, simulate_plan
from forerun.simulator.events.trees import simulate_tree
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.trees import Node, legal_tree, model_layers, resolve_tree, tree_of, tree_yaml
from forerun.spaces.trees.document import parse_tree


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One case: GPUs, what it is, seconds to read and judge the tree, seconds to compile and run it, its tasks, the
    step that it predicts."""

    model: str
    gpus: int
    tree: str
    read_s: float
    run_s: float
    tasks: int
    step_s: float


def best_s(run: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Return the best processor time of some runs, and what the last one returned."""
    best, result = float("inf"), None
    for _ in range(repeat):
        started = time.process_time()
        result = run()
        best = min(best, time.process_time() - started)
    return best, result


def transformer(model: str, gpus: int, batch: int, words: str, repeat: int) -> Speed:
    """Measure a strategy, whose halves may differ in tp, as a tree."""
    setting = resolve(Request(model=model, cluster="dgx-a100-80", global_batch=batch, seq_len=1024))
    context, strategy = setting.context, parse_strategy(words)
    text = tree_yaml(tree_of(context, strategy))

    def read() -> Any:
        root: Node = parse_tree(text)
        return legal_tree(context, resolve_tree(root, model_layers(context.model)))

    read_s, legal = best_s(read, repeat)
    run_s, result = best_s(lambda: simulate_tree(context, legal), repeat)
    return Speed(
        model=model,
        gpus=gpus,
        tree=str(strategy),
        read_s=read_s,
        run_s=run_s,
        tasks=len(result.events.graph),
        step_s=float(result.scores.step_time_s[0]),
    )


def layered(model: str, gpus: int, batch: int, name: str, repeat: int, *children: dict[str, Any]) -> Speed:
    """Measure a model of operators whose samples are cut over all GPUs, but for some layers."""
    context = resolve_request(LayeredRequest(model=model, cluster="dgx-a100-80", global_batch=batch)).context
    tree = {"schedule": {"microbatches": 1}, "compute": {"cut": {"batch": gpus}}, "children": list(children)}
    text = json.dumps(tree)
    read_s, _ = best_s(lambda: layered_plan(context, parse_tree(text, "tree.json"), batch), repeat)

    def run() -> Any:
        # A plan keeps the communication that it has inferred: inferring it is part of the work.
        return simulate_plan(layered_plan(context, parse_tree(text, "tree.json"), batch))

    run_s, result = best_s(run, repeat)
    return Speed(
        model=model,
        gpus=gpus,
        tree=name,
        read_s=read_s,
        run_s=run_s - read_s,
        tasks=len(result.graph),
        step_s=result.step_time_s,
    )


def cases(repeat: int) -> list[Speed]:
    """Return all cases, the two that Proteus publishes times of first."""
    fully = ["linear*", "relu17", "relu18", "dropout*", "loss1"]
    found = [
        layered("vgg19", 32, 1024, "data parallel", repeat),
        layered(
            "vgg19",
            32,
            1024,
            "classifier sharded",
            repeat,
            {"layers": fully, "compute": {"cut": {"channels": 8, "batch": 4}}},
        ),
        transformer("gpt3-1.3b", 32, 128, "tp2 pp4 dp4 mbs1 zero1", repeat),
        transformer("gpt3-1.3b", 32, 128, "tp2/4 pp4 dp4/2 mbs1/2 zero1", repeat),
        transformer("gpt3-175b", 1024, 512, "tp8 pp16 dp8 mbs1 zero1 sp", repeat),
    ]
    for gpus in (8, 64, 512):
        found.append(layered("resnet50", gpus, 16 * gpus, "data parallel", repeat))
    return found


def main() -> None:
    """Print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False).stdout
    lines = [
        f"# Strategy trees, {datetime.date.today()}",
        "",
        f"`python benchmarks/trees.py --repeat {args.repeat}` at commit {commit.strip() or 'unknown'}; "
        f"{platform.machine()}, one of 2 cores shared with other work, Python {platform.python_version()}; DGX A100. "
        "*Read*: the text of the tree to legal settings of every layer (models of operators: and the cost of every "
        "part); *run*: inference, compilation, execution, memory and critical path. Proteus needs 1.7 s for VGG-19 and "
        "6.3 s for GPT-2 on 32 GPUs, by its paper.",
        "",
        "| model | GPUs | tree | read s | run s | tasks | step ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in cases(args.repeat):
        lines.append(
            f"| {one.model} | {one.gpus} | {one.tree} | {one.read_s:.3f} | {one.run_s:.3f} | {one.tasks:,} | "
            f"{one.step_s * 1e3:.1f} |"
        )
        print(lines[-1], flush=True)
    if args.out is not None:
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
