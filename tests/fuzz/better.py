"""Changes whose effect has a known sign or size: better machines, other units, times that are all scaled."""

import dataclasses
import functools
import importlib
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import yaml

from forerun.search.answer.searches import search_request
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.explore.flat.flat_search import problem_of
from forerun.search.request.kinds import kind_of
from forerun.search.request.request import Request
from forerun.search.request.setting import Setting
from forerun.search.scale.request import ScaleRequest, scale
from forerun.simulator import score
from forerun.simulator.core.bound import LeastStep
from forerun.simulator.opgraph.events.graph_step import simulate_plan
from forerun.simulator.opgraph.events.planning import graph_plan
from forerun.simulator.opgraph.split_tree import tree_of_split
from forerun.spaces.clusters import Cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.split import Mode, Split
from forerun.spaces.strategies import Strategy, StrategySpace
from tests.fuzz.sample import ROOT

ROUNDING = 1e-9
SLICE = 1 << 18
"""Candidates, legal or not, among which those are drawn that are compared with the bound of a search."""
MIXTURE_SLACK = 0.001
"""By how much the estimate of a network whose layers are split in several ways may be worse (docs/laws.md)."""


def better(cluster: Cluster, random: Random) -> tuple[str, Cluster]:
    """Return a change of a cluster that makes nothing worse."""
    device, factor = cluster.device, random.choice((1.01, 1.5, 2.0, 10.0))

    def with_device(**changes: object) -> Cluster:
        changed = dataclasses.replace(device, **changes)  # type: ignore[arg-type]  # values of the fields' types
        return dataclasses.replace(cluster, device=changed)

    peaks = {name: rate * factor for name, rate in device.peak_flops_per_s.items()}
    changes: dict[str, Callable[[], Cluster]] = {
        "flops": lambda: with_device(peak_flops_per_s=peaks),
        "memory rate": lambda: with_device(memory_bytes_per_s=device.memory_bytes_per_s * factor),
        "memory": lambda: with_device(memory_bytes=device.memory_bytes * factor),
        "links": lambda: shared_laws().on_faster_links(cluster, factor),
    }
    what = random.choice(list(changes))
    return f"{factor:g} x {what}", changes[what]()


def worse_on_better(setting: Setting, board: Leaderboard, random: Random) -> Iterator[str]:
    """Yield strategies that a better machine makes worse: of pipelines of networks, which are simulated, one alone."""
    what, cluster = better(setting.context.cluster, random)
    strategies = [row.strategy for row in board.rows if not _is_cut_anew(row.strategy)]
    piped = [row.strategy for row in board.rows if _is_cut_anew(row.strategy)]
    strategies += random.sample(piped, min(len(piped), 1))
    contexts = setting.context, dataclasses.replace(setting.context, cluster=cluster)
    before, after = _scored(contexts, strategies)
    for number, (strategy, slack) in enumerate(zip(strategies, _slacks(setting.context, strategies), strict=True)):
        if after[0][number] > before[0][number] * (1 + slack):
            yield f"{what}: {strategy} takes {after[0][number]} s, and {before[0][number]} s without"
        if before[1][number] and not after[1][number]:
            yield f"{what}: {strategy} does not fit any more"


def spared(setting: Setting, random: Random) -> Iterator[str]:
    """Yield candidates that take less than the bound by which a search passes over those that cannot be the best."""
    space = problem_of(setting).space
    if not isinstance(space, StrategySpace) or setting.context.correction is not None:
        return
    low = random.randrange(space.size)
    table = space.table(low, min(space.size, low + SLICE))[0]
    if not len(table):
        return
    table = table.take(np.array(sorted(random.sample(range(len(table)), min(len(table), 500)))))
    least_s, step_s = LeastStep(setting.context).step_s(table), score(setting.context, table).step_time_s
    worst = int(np.argmax(least_s / step_s))
    if least_s[worst] > step_s[worst] * (1 + ROUNDING):
        yield f"no step is under {least_s[worst]} s, but {table.strategy(worst)} takes {step_s[worst]} s"


def _is_cut_anew(strategy: Any) -> bool:
    """Whether a strategy is a pipeline of a network, whose stages a faster device cuts elsewhere."""
    return isinstance(strategy, Split) and strategy.mode is Mode.PIPELINE


def _slacks(context: Any, strategies: list[Any]) -> list[float]:
    """Return by how much a better machine may make the estimate of each strategy worse."""
    if not all(isinstance(strategy, Strategy) for strategy in strategies):
        return [ROUNDING if isinstance(strategy, Split) else MIXTURE_SLACK for strategy in strategies]
    slacks = shared_laws().slacks(context, kind_of(context).table(context, strategies))
    return [float(slack) + ROUNDING for slack in slacks]


@functools.cache
def shared_laws() -> Any:
    """Return the module of changes and slacks (docs/laws.md) that the tests share."""
    sys.path.insert(0, str(ROOT / "tests" / "support"))
    try:
        return importlib.import_module("laws")
    finally:
        del sys.path[0]


def _scored(contexts: tuple[Any, Any], strategies: list[Any]) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Return seconds and verdicts of strategies on two machines. Pipelines of networks are compared as trees, which
    have the cuts of the first machine on both."""
    kind, found = kind_of(contexts[0]), []
    for context in contexts:
        scores = score(context, kind.table(context, strategies))
        found.append((scores.step_time_s.copy(), scores.fits))
    for number, strategy in enumerate(strategies):
        if _is_cut_anew(strategy):
            batch = contexts[0].batch(strategy.devices)
            tree = tree_of_split(contexts[0], strategy, batch)
            for context, (step_s, _) in zip(contexts, found, strict=True):
                step_s[number] = simulate_plan(graph_plan(context, tree, batch)).step_time_s
    return tuple(found)


_RATE = re.compile(r"^([0-9.]+) ?(G|T)(B|b)/s$")


def in_other_units(value: Any) -> Any:
    """Return a document whose rates are spelt in other units: bits for bytes, giga for tera."""
    if isinstance(value, dict):
        return {key: in_other_units(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [in_other_units(inner) for inner in value]
    found = _RATE.match(value) if isinstance(value, str) else None
    if found is None:
        return value
    number, prefix, unit = float(found[1]), found[2], found[3]
    number, unit = (number * 8, "b") if unit == "B" else (number / 8, "B")
    number, prefix = (number * 1000, "G") if prefix == "T" else (number / 1000, "T")
    return f"{number!r}{prefix}{unit}/s"


def units(request: Request, board: Leaderboard, folder: Path) -> Iterator[str]:
    """Yield what a cluster says otherwise when its rates are spelt in other units."""
    path = ROOT / "spaces" / "clusters" / "data" / "clusters" / f"{request.cluster}.yaml"
    other = folder / "units.yaml"
    other.write_text(yaml.safe_dump(in_other_units(yaml.safe_load(path.read_text()))))
    again = search_request(dataclasses.replace(request, cluster=str(other)))
    found = {row.name: row.step_time_s for row in again.rows}
    for row in board.rows[:1]:
        step_s = found.get(row.name, math.nan)
        if not math.isclose(step_s, row.step_time_s, rel_tol=1e-12):
            yield f"in other units {row.name} takes {step_s} s, not {row.step_time_s}"


def curves(random: Random, folder: Path) -> list[str] | None:
    """Return what throughput curves of a random profile break: all times scaled, a faster network; None: no answer."""
    factor = random.choice((0.5, 2.0, 16.0))  # powers of two: exact
    layers: list[dict[str, Any]] = [
        {"name": f"l{n}", "parameters": random.randrange(1, 10**8), "forward": random.uniform(1e-4, 1e-2),
         "backward": random.uniform(1e-4, 1e-2)}
        for n in range(random.randrange(1, 12))
    ]  # fmt: skip
    mode = random.choice(("all-reduce", "sync-ps", "async-ps"))
    fidelity = random.choice(("coarse", "both"))
    rate, latency_s = 10 ** random.uniform(8, 10.5), random.choice((0.0, 1e-5))

    def throughput(times: float, faster: float) -> list[float]:
        timed = [layer | {name: layer[name] * times for name in ("forward", "backward")} for layer in layers]
        path = folder / "net.yaml"
        path.write_text(yaml.safe_dump({"name": "net", "batch": 32, "update": 1e-3 * times, "layers": timed}))
        request = ScaleRequest(
            model=str(path), workers="1,2,4", mode=mode, fidelity=fidelity,  # type: ignore[arg-type]
            bandwidth_bytes_per_s=rate * faster / times, latency_s=latency_s * times,
        )  # fmt: skip
        return [point.chosen.samples_per_s for point in scale(request).curve.points]

    try:
        plain, scaled, fast = throughput(1.0, 1.0), throughput(factor, 1.0), throughput(1.0, 2.0)
    except RequestError:
        return None
    case = f"[{mode} {fidelity} {len(layers)} layers {rate:.3g} B/s]"
    found = [
        f"all times x {factor}: {slow} samples/s against {quick}  {case}"
        for quick, slow in zip(plain, scaled, strict=True)
        if not math.isclose(slow * factor, quick, rel_tol=1e-9)
    ]
    slack = 0.05 if mode == "async-ps" else ROUNDING
    return found + [
        f"twice the bandwidth: {after} samples/s against {before}  {case}"
        for before, after in zip(plain, fast, strict=True)
        if after < before * (1 - slack)
    ]
