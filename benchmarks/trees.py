"""Speed of strategy trees: from the text of a tree to the finished step, by part, for Proteus' cases and larger ones;
and what ``search --trees`` finds on top of the best flat strategies, in how long.

    python benchmarks/trees.py [--repeat N] [--out FILE.md]

Each time is the best of N runs in one process (searches: of one), in seconds of the processor.
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

from forerun.search.answer.refine import refine
from forerun.search.answer.searches import search_request
from forerun.search.answer.trees import with_trees
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.events.trees import simulate_tree
from forerun.simulator.opgraph.events import graph_plan, simulate_plan
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.trees import Node, legal_tree, model_layers, resolve_tree, tree_yaml
from forerun.spaces.trees.document import parse_tree
from forerun.spaces.trees.vary import Cutting, Variation, varied_tree


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


def transformer(model: str, gpus: int, batch: int, words: str, repeat: int, **apart: Cutting) -> Speed:
    """Measure a strategy, whose halves may differ in tp, as a tree; ``apart``: how its modules are cut otherwise."""
    setting = resolve(Request(model=model, cluster="dgx-a100-80", global_batch=batch, seq_len=1024))
    context, strategy = setting.context, parse_strategy(words)
    variation = Variation(strategy=strategy, **apart)
    text = tree_yaml(varied_tree(context, variation))

    def read() -> Any:
        root: Node = parse_tree(text)
        return legal_tree(context, resolve_tree(root, model_layers(context.model)))

    read_s, legal = best_s(read, repeat)
    run_s, result = best_s(lambda: simulate_tree(context, legal), repeat)
    return Speed(
        model=model,
        gpus=gpus,
        tree=" + ".join((str(strategy), *variation.changes)),
        read_s=read_s,
        run_s=run_s,
        tasks=len(result.events.records),
        step_s=float(result.scores.step_time_s[0]),
    )


def graph(model: str, gpus: int, batch: int, name: str, repeat: int, *children: dict[str, Any]) -> Speed:
    """Measure an operator graph whose samples are cut over all GPUs, but for some layers."""
    context = resolve(Request(model=model, cluster="dgx-a100-80", global_batch=batch)).context
    tree = {"schedule": {"microbatches": 1}, "compute": {"cut": {"batch": gpus}}, "children": list(children)}
    text = json.dumps(tree)
    read_s, _ = best_s(lambda: graph_plan(context, parse_tree(text, "tree.json"), batch), repeat)

    def run() -> Any:
        # A plan keeps the communication that it has inferred: inferring it is part of the work.
        return simulate_plan(graph_plan(context, parse_tree(text, "tree.json"), batch))

    run_s, result = best_s(run, repeat)
    return Speed(
        model=model,
        gpus=gpus,
        tree=name,
        read_s=read_s,
        run_s=run_s - read_s,
        tasks=len(result.records),
        step_s=result.step_time_s,
    )


def cases(repeat: int) -> list[Speed]:
    """Return all cases, the two that Proteus publishes times of first."""
    fully = ["linear*", "relu17", "relu18", "dropout*", "loss1"]
    found = [
        graph("vgg19", 32, 1024, "data parallel", repeat),
        graph(
            "vgg19",
            32,
            1024,
            "classifier sharded",
            repeat,
            {"layers": fully, "compute": {"cut": {"channels": 8, "batch": 4}}},
        ),
        transformer("gpt3-1.3b", 32, 128, "tp2 pp4 dp4 mbs1 zero1", repeat),
        transformer("gpt3-1.3b", 32, 128, "tp2/4 pp4 dp4/2 mbs1/2 zero1", repeat),
        transformer("gpt3-1.3b", 32, 128, "tp2 pp4 dp4 mbs2 zero1", repeat, attention=Cutting(tp=1)),
        transformer("gpt3-175b", 1024, 512, "tp8 pp16 dp8 mbs1 zero1 sp", repeat),
        transformer("gpt3-175b", 1024, 512, "tp8 pp16 dp8 mbs2 zero1 sp", repeat, attention=Cutting(tp=4, sp=True)),
    ]
    for gpus in (8, 64, 512):
        found.append(graph("resnet50", gpus, 16 * gpus, "data parallel", repeat))
    return found


SEARCHES = (
    ("llama3-8b", "dgx-a100-40", 8, 128, 8192, "megatron-lm", {}),
    ("llama3-8b", "dgx-a100-40", 8, 128, 8192, "megatron-lm", {"cp": ["1"]}),
    ("llama2-70b", "dgx-a100-80", 32, 512, 4096, "megatron-lm", {}),
    ("llama2-70b", "dgx-a100-80", 32, 512, 4096, "megatron-lm", {"cp": ["1"], "vpp": ["1"]}),
    ("gpt3-175b", "dgx-a100-80", 64, 256, 2048, "megatron-lm", {"vpp": ["1"]}),
    ("mixtral-8x7b", "dgx-a100-80", 32, 512, 4096, "megatron-lm", {}),
)
"""Requests whose memory is short: model, cluster, GPUs, global batch, sequence, framework, restricted axes."""


def searches() -> list[str]:
    """Return the rows of the table of searches."""
    lines = []
    for model, cluster, gpus, batch, seq_len, framework, overrides in SEARCHES:
        request = Request(
            model=model,
            cluster=cluster,
            gpus=str(gpus),
            global_batch=batch,
            seq_len=seq_len,
            framework=framework,
            overrides=overrides,
            top=20,
        )
        setting = resolve(request)
        board = refine(search_request(request), setting, 10)
        seconds, found = best_s(lambda board=board, setting=setting: with_trees(board, setting, 3).trees, 1)
        axes = ", ".join(f"{axis} {','.join(choices)}" for axis, choices in overrides.items()) or "all"
        best = found.rows[0] if found.rows else None
        said = "none faster than the last row" if best is None else f"{best.start} + {' + '.join(best.changes)}"
        step = "" if best is None else f"{best.row.step_time_s:.2f}"
        gain = "" if best is None else f"{found.gain:+.1%}"
        lines.append(
            f"| {model} | {gpus} x {cluster} | {axes} | {board.rows[0].strategy} | {board.rows[0].step_time_s:.2f} | "
            f"{said} | {step} | {gain} | {found.judged} / {found.simulated} | {seconds:.1f} |"
        )
        print(lines[-1], flush=True)
    return lines


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
        "*Read*: the text of the tree to legal settings of every layer (operator graphs: and the cost of every "
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
    lines += [
        "",
        "## Searches",
        "",
        "`search --trees 3` on top of the best ten flat strategies of each request, event by event (megatron-lm). "
        "*Gain*: of the best tree over the best flat strategy; *judged*: trees, and those of them that were simulated.",
        "",
        "| model | GPUs | axes | best flat | step s | best tree | step s | gain | judged | s |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *searches(),
    ]
    if args.out is not None:
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
