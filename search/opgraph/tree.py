"""Strategy trees for operator graphs, and splits as such: simulated event by event, and shown as plain data."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search.opgraph.request import GraphSetting
from forerun.simulator import TIME_PARTS
from forerun.simulator.events import EventResult
from forerun.simulator.opgraph.events import GraphPlan, graph_plan, simulate_plan
from forerun.simulator.opgraph.memory import RESERVE_BYTES, USABLE
from forerun.simulator.opgraph.split_tree import tree_of_split
from forerun.spaces.documents import Document
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.opgraph.split import Split
from forerun.spaces.trees import Node, TreeError
from forerun.spaces.trees.document import at_line, read_tree
from forerun.spaces.trees.names import ranges_text
from forerun.spaces.trees.write import tree_yaml

GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTree:
    """A simulated tree: ``row`` with the keys of a row of splits as far as a tree has them, ``tree`` what it says."""

    row: dict[str, Any]
    tree: dict[str, Any]
    events: EventResult


def simulate_graph_tree(setting: GraphSetting, path: Path) -> GraphTree:
    """Simulate the tree of a file.

    Raises:
        RequestError: the file is no tree or the tree is wrong; the message has file, line and path of the node.
    """
    root, document = read_tree(path)
    plan = _plan(setting, root, document)
    count = plan.tree.device_count
    if setting.counts is not None and count not in setting.counts:
        counts = " or ".join(map(str, setting.counts[:8]))
        raise RequestError(f"{path} occupies {count} GPUs, but --gpus asks for {counts}")
    events = simulate_plan(plan)
    return GraphTree(row=_row(setting, plan, events, f"tree {path.name}"), tree=_tree(plan, path), events=events)


def simulate_split(setting: GraphSetting, split: Split) -> GraphTree:
    """Simulate a split event by event, as the tree that it is."""
    name, batch = str(split), setting.batch(split.devices)
    plan = graph_plan(setting.context, tree_of_split(setting.context, split, batch), batch)
    events = simulate_plan(plan)
    return GraphTree(row=_row(setting, plan, events, name), tree=_tree(plan, Path(name)), events=events)


def write_split(setting: GraphSetting, split: Split, path: Path) -> None:
    """Write a split as the strategy tree that it is; ``simulate_graph_tree`` gives the same answer, to the last digit.

    Raises:
        RequestError: the file cannot be written.
    """
    root = tree_of_split(setting.context, split, setting.batch(split.devices))
    write_text(path, f"# {split}\n# of {setting.context.model.name}\n{tree_yaml(root)}")


def _plan(setting: GraphSetting, root: Node, document: Document) -> GraphPlan:
    try:
        batch = setting.batch(_devices(root))
        return graph_plan(setting.context, root, batch)
    except TreeError as error:
        raise at_line(error, document) from None


def _devices(node: Node) -> int:
    """Return how many devices the nodes of a tree name; what one without stages is cut into."""
    named: set[int] = set()
    stack = [node]
    while stack:
        one = stack.pop()
        named |= set(one.devices)
        stack += one.children
    if named:
        return len(named)
    count = 1
    for degree in (node.compute.cut or {}).values():
        count *= degree
    return count


def _row(setting: GraphSetting, plan: GraphPlan, events: EventResult, name: str) -> dict[str, Any]:
    gpus, batch = plan.tree.device_count, setting.batch(plan.tree.device_count)
    peak = (events.peak_memory_bytes + RESERVE_BYTES) / GIB
    limit = USABLE * setting.context.cluster.device.memory_bytes / GIB
    samples = batch / events.step_time_s
    return {
        "strategy": name,
        "gpus": gpus,
        "global_batch": batch,
        "step_time_s": events.step_time_s,
        "samples_per_s": samples,
        "samples_per_s_per_gpu": samples / gpus,
        "peak_memory_gib": peak,
        "memory_limit_gib": limit,
        "fits": peak <= limit,
        "breakdown_s": {part: events.time_s[part] for part in TIME_PARTS},
    }


def _tree(plan: GraphPlan, path: Path) -> dict[str, Any]:
    """Return stages, and the inferred communication by phase and kind: how many transfers, and their elements."""
    stages = []
    for number, stage in enumerate(plan.tree.stages):
        cuts: dict[str, list[str]] = {}
        for leaf in stage.leaves:
            cut = " ".join(f"{axis}={degree}" for axis, degree in (leaf.compute.cut or {}).items())
            cuts.setdefault(cut, []).append(leaf.layer)
        stages.append(
            {
                "name": stage.name,
                "devices": ranges_text(stage.devices),
                "device_stage": plan.tree.rank_of_stage[number],
                "layers": len(stage.leaves),
                "cuts": {cut: len(layers) for cut, layers in cuts.items()},
            }
        )
    counts: Counter[tuple[str, str]] = Counter()
    elements: Counter[tuple[str, str]] = Counter()
    for need in plan.needs:
        for transfer in need.transfers:
            counts[need.phase.value, transfer.kind] += 1
            elements[need.phase.value, transfer.kind] += round(max(transfer.elements))
    return {
        "file": str(path),
        "microbatches": plan.tree.microbatches,
        "stages": stages,
        "communication": [
            {"phase": phase, "kind": kind, "transfers": count, "elements": elements[phase, kind]}
            for (phase, kind), count in counts.items()
        ],
    }
