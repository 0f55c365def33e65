"""How far the closed forms of the vectorised core and the event engine agree where nothing is shared.

    python benchmarks/agreement.py [--candidates 200] [--seed 1] [--random N] [--out benchmarks/results]

Random legal candidates of ten pairs of model and cluster are scored by both levels. ``--random`` draws N requests of
small batches from all models, clusters and frameworks of the catalogue, and candidates that fit into memory, one half
of them the fastest. Where the levels differ by more than 3 %, the traffic of replicas is removed, followed by that
between stages: the part without which they agree is the cause.
"""

import argparse
import datetime
import platform
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
from scipy.stats import kendalltau

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.simulator import score
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import StepCosts, step_costs
from forerun.simulator.events.step.steady import step_figures
from forerun.spaces.clusters.catalogue import cluster_names
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks.catalogue import framework_names
from forerun.spaces.models.catalogue import model_names
from forerun.spaces.strategies import Schedule, Split, Strategy, table_of

PAIRS = (
    Request(model="llama3-70b", cluster="dgx-h100", gpus="64", global_batch=256, seq_len=8192),
    Request(model="llama3-8b", cluster="dgx-h100", gpus="32", global_batch=128, seq_len=8192, framework="torchtitan"),
    Request(model="llama2-13b", cluster="dgx-a100-80", gpus="64", global_batch=256, seq_len=4096, framework="nemo"),
    Request(model="gpt3-175b", cluster="dgx-a100-80", gpus="128", global_batch=256, seq_len=2048),
    Request(
        model="gpt3-13b",
        cluster="dgx-a100-80",
        gpus="32",
        global_batch=128,
        seq_len=2048,
        framework="megatron-deepspeed",
    ),
    Request(model="llama2-7b", cluster="dgx-h100", gpus="64", global_batch=512, seq_len=4096, framework="nanotron"),
    Request(model="mixtral-8x7b", cluster="dgx-h100", gpus="64", global_batch=256, seq_len=4096),
    Request(model="deepseek-v2-lite", cluster="dgx-h100", gpus="32", global_batch=256, seq_len=4096),
    Request(
        model="llama3-70b", cluster="dgx-a100-80", gpus="256", global_batch=512, seq_len=8192, framework="deepspeed"
    ),
    Request(model="llama3-405b", cluster="dgx-h100", gpus="512", global_batch=512, seq_len=8192, framework="nemo"),
)
FAR = 0.03
"""Relative difference of step times beyond which the levels count as apart (issue: 3 % everywhere, median 1 %)."""

SIZES = (4, 8, 16, 32, 64, 128)
"""GPUs of random requests."""

BATCHES = (0.5, 1, 2, 4, 8)
"""Sequences per GPU of random requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One candidate: both step times in seconds, and what sets them apart if they are."""

    strategy: Strategy
    closed_s: float
    events_s: float
    cause: str

    @property
    def error(self) -> float:
        """The closed form's relative error, the event level being right."""
        return self.closed_s / self.events_s - 1


def candidates_of(setting: Setting, count: int, seed: int) -> list[Strategy]:
    """Draw random legal candidates of a request."""
    space = setting.space()
    table, _ = space.table(0, space.size)
    rows = np.random.default_rng(seed).choice(len(table), min(count, len(table)), replace=False)
    return [table.strategy(int(row)) for row in np.sort(rows)]


def ranked_candidates(setting: Setting, count: int, seed: int) -> list[Strategy]:
    """Draw candidates that fit into memory: one half the fastest, the other half random."""
    space = setting.space()
    table, _ = space.table(0, space.size)
    if not len(table):
        return []
    scores = score(setting.context, table)
    fitting = np.flatnonzero(scores.fits)
    fastest, others = np.split(fitting[np.argsort(scores.step_time_s[fitting], kind="stable")], [count // 2])
    drawn = np.random.default_rng(seed).choice(others, min(count - count // 2, len(others)), replace=False)
    return [table.strategy(int(row)) for row in (*fastest, *drawn)]


def compared(setting: Setting, strategies: Sequence[Strategy]) -> list[Compared]:
    """Score candidates of a request at both levels."""
    scores = score(setting.context, table_of(strategies))
    pairs = []
    for row, strategy in enumerate(strategies):
        costs = step_costs(assign(setting.context, strategy))
        closed_s, events_s = float(scores.step_time_s[row]), step_figures(costs).step_time_s
        cause = ""
        if abs(closed_s / events_s - 1) > FAR:
            parts = {part: float(values[row]) for part, values in scores.time_s.items()}
            cause = _cause(strategy, costs, closed_s, parts)
        pairs.append(Compared(strategy=strategy, closed_s=closed_s, events_s=events_s, cause=cause))
    return pairs


def _cause(strategy: Strategy, costs: StepCosts, closed_s: float, parts: dict[str, float]) -> str:
    """Return which part of the model sets the two levels apart."""
    kind = Schedule(strategy.schedule).name.lower()
    even = strategy.split == Split.EVEN and strategy.layers_per_stage is None
    alone = replace(costs, tied_s=0.0, stages=tuple(replace(one, reduce_s=0.0, gather_s=0.0) for one in costs.stages))
    tied_s = costs.tied_s if strategy.pp > 1 else 0.0
    error = abs(closed_s / step_figures(costs).step_time_s - 1)
    if abs((closed_s - parts["data"]) / step_figures(alone).step_time_s - 1) < error / 2:
        return (
            f"replica traffic, zero {strategy.zero}, {kind}"
            if not tied_s
            else f"replica traffic, zero {strategy.zero}, {kind}, tied"
        )
    still = replace(alone, p2p_s=0.0)
    rest_s = closed_s - parts["data"] - parts["pipeline"]
    if abs(rest_s / step_figures(still).step_time_s - 1) < error / 2:
        return f"p2p transfers, {kind}, {'overlapped' if costs.overlap_p2p else 'blocking'}"
    return f"order of passes, {kind}, {'equal' if even else 'unequal'} layers"


def summary(name: str, pairs: Sequence[Compared]) -> str:
    """Return one line of the table of pairs."""
    errors = np.array([abs(one.error) for one in pairs])
    closed, events = (np.array([getattr(one, level) for one in pairs]) for level in ("closed_s", "events_s"))
    tau = float(kendalltau(closed, events).statistic)
    regret = events[np.argmin(closed)] / events.min() - 1
    cells = (name, len(pairs), f"{100 * np.median(errors):.2f}", f"{100 * np.mean(errors <= FAR):.1f}")
    return " | ".join(map(str, (*cells, f"{100 * errors.max():.1f}", f"{tau:.3f}", f"{100 * regret:.2f}")))


def causes(pairs: Sequence[Compared]) -> list[str]:
    """Return the lines of the table of causes, the most frequent first."""
    groups: dict[str, list[float]] = defaultdict(list)
    for one in pairs:
        if one.cause:
            groups[one.cause].append(100 * one.error)
    return [
        f"| {cause} | {100 * len(errors) / len(pairs):.2f} | {np.median(errors):+.1f} | {min(errors):+.1f} "
        f"| {max(errors):+.1f} |"
        for cause, errors in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]


def random_requests(count: int, seed: int) -> Iterator[tuple[Request, Setting]]:
    """Yield ``count`` random requests of small batches that have a space of strategies."""
    draw = Random(seed)
    while count:
        gpus = draw.choice(SIZES)
        request = Request(
            model=draw.choice(model_names()),
            cluster=draw.choice(cluster_names()),
            gpus=str(gpus),
            global_batch=max(int(gpus * draw.choice(BATCHES)), 1),
            seq_len=draw.choice((512, 1024, 2048, 4096, 8192)),
            framework=draw.choice((None, *framework_names())),
        )
        try:
            setting = resolve(request)
        except RequestError:
            continue
        count -= 1
        yield request, setting


def main() -> None:
    """Compare, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=200, help="per pair of model and cluster")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=int, default=0, help="random requests instead of the ten pairs")
    parser.add_argument("--worst", type=int, default=0, help="print this many of the worst candidates of every pair")
    parser.add_argument("--out", type=Path, help="directory of the dated page")
    args = parser.parse_args()
    lines, everything, start = [], [], time.perf_counter()
    stated = ((request, resolve(request)) for request in PAIRS)
    for request, setting in random_requests(args.random, args.seed) if args.random else stated:
        strategies = (ranked_candidates if args.random else candidates_of)(setting, args.candidates, args.seed)
        if not strategies:
            continue
        pairs = compared(setting, strategies)
        everything += pairs
        lines.append(
            f"| {summary(f'{request.model}, {request.gpus} of {request.cluster}, {request.framework}', pairs)} |"
        )
        print(lines[-1], flush=True)
        for one in sorted(pairs, key=lambda one: -abs(one.error))[: args.worst]:
            print(f"    {100 * one.error:+.1f} %  {one.strategy}  ({one.cause})", flush=True)
    kind = f" --random {args.random}" * bool(args.random)
    page = [
        f"# Agreement of the two levels of fidelity, {datetime.date.today()}",
        "",
        f"`python benchmarks/agreement.py --candidates {args.candidates} --seed {args.seed}{kind}`"
        f" on {platform.machine()}, "
        f"CPython {platform.python_version()}, {time.perf_counter() - start:.0f} s. Random legal candidates; the event "
        "level without contention is right by definition.",
        "",
        "| request | candidates | median % | within 3 %, % | worst % | tau | regret of the first pick % |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *lines,
        f"| {summary('all (tau and regret across requests mean nothing)', everything)} |",
        "",
        "What sets apart those beyond 3 %:",
        "",
        "| cause | share of all % | median error of the closed form % | least | most |",
        "|---|---:|---:|---:|---:|",
        *causes(everything),
    ]
    print("\n".join(page))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / f"{datetime.date.today()}-agreement{'-random' * bool(args.random)}.md").write_text(
            "\n".join(page) + "\n"
        )


if __name__ == "__main__":
    main()
