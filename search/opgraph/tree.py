"""Strategy trees for operator graphs: event-level simulation and plain data; splits as trees."""

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

from forerun.search.board.rows import Row, tree_row
from forerun.search.request.setting import Setting
from forerun.simulator.events import EventResult
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.bottleneck import MIXED_NORMS, SplitFacts
from forerun.simulator.opgraph.events import GraphPlan, graph_plan, simulate_plan
from forerun.simulator.opgraph.events.scores import result_row
from forerun.simulator.opgraph.memory import RESERVE_BYTES
from forerun.simulator.opgraph.split_tree import tree_of_split
from forerun.simulator.opgraph.table import AnySplit
from forerun.spaces.documents import Document
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.split import Split
from forerun.spaces.trees import Node, TreeError
from forerun.spaces.trees.document import at_line, read_tree
from forerun.spaces.trees.names import ranges_text


def simulate_graph_tree(
    setting: Setting[GraphContext], path: Path, *, contention: bool = False
) -> tuple[Row[Split], EventResult, dict[str, Any]]:
    """Simulate the tree of a file; return its row, its step and its facts. ``contention``: see ``simulate_plan``.

    Raises:
        RequestError: the file is not a tree or the tree is wrong; the message has file, line and path of the node.
    """
    root, document = read_tree(path)
    plan = _plan(setting, root, document)
    count = plan.tree.device_count
    if setting.gpus is not None and count not in setting.gpus:
        counts = " or ".join(map(str, setting.gpus[:8]))
        raise RequestError(f"{path} occupies {count} GPUs, but --gpus asks for {counts}")
    events = simulate_plan(plan, contention=contention)
    scores = result_row(setting.context, events, {"reserve": RESERVE_BYTES})
    row = tree_row(
        setting.context,
        f"tree {path.name}",
        count,
        (Split(replicas=count),),
        scores,
        usd_per_gpu_hour=setting.usd_per_gpu_hour,
    )
    facts = SplitFacts(global_batch=setting.context.batch(count), family="tree", batch_norm=MIXED_NORMS)
    return dataclasses.replace(row, facts=facts), events, tree_facts(plan, str(path))


def split_facts(setting: Setting[GraphContext], split: AnySplit) -> dict[str, Any]:
    """Return the tree of a split as plain data."""
    batch = setting.context.batch(split.devices)
    return tree_facts(graph_plan(setting.context, tree_of_split(setting.context, split, batch), batch), str(split))


def _plan(setting: Setting[GraphContext], root: Node, document: Document) -> GraphPlan:
    try:
        batch = setting.context.batch(_devices(root))
        return graph_plan(setting.context, root, batch)
    except TreeError as error:
        raise at_line(error, document) from None


def _devices(root: Node) -> int:
    """Count the devices named in a tree; without stages, the parts of the root or of the first node with a cut."""
    named: set[int] = set()
    count, stack = 0, [root]
    while stack:
        one = stack.pop(0)
        named |= set(one.devices)
        count = count or math.prod((one.compute.cut or {}).values()) * bool(one.compute.cut)
        stack += one.children
    return len(named) or max(count, 1)


def tree_facts(plan: GraphPlan, name: str) -> dict[str, Any]:
    """Return a tree as plain data: stages, inferred transfers and elements by phase and kind, and cut and transfers of
    every operator.

    ``elements`` of a transfer count one of its groups, as in ``Transfer``."""
    stages = []
    for number, stage in enumerate(plan.tree.stages):
        cuts: dict[str, list[str]] = {}
        for leaf in stage.leaves:
            cuts.setdefault(_cut_text(plan, leaf.layer), []).append(leaf.layer)
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
        "file": name,
        "microbatches": plan.tree.microbatches,
        "stages": stages,
        "communication": [
            {"phase": phase, "kind": kind, "transfers": count, "elements": elements[phase, kind]}
            for (phase, kind), count in counts.items()
        ],
        "operators": _operators(plan),
    }


def _cut_text(plan: GraphPlan, operator: str) -> str:
    """Return the cuts of an operator as text, like ``batch=4 channels=2``; "" on one device."""
    cuts = plan.shares[operator].cuts
    return " ".join(f"{cut.axis or ('average' if cut.averaged else 'replicate')}={cut.degree}" for cut in cuts)


def _operators(plan: GraphPlan) -> list[dict[str, Any]]:
    """Return every operator with its pipeline rank, its cut and its transfers."""
    needed: dict[str, list[dict[str, Any]]] = {}
    for need in plan.needs:
        for transfer in need.transfers:
            needed.setdefault(need.operator, []).append(
                {
                    "phase": need.phase.value,
                    "kind": transfer.kind,
                    "groups": len(transfer.groups),
                    "members": len(transfer.groups[0]),
                    "elements": max(transfer.elements),
                }
            )
    return [
        {
            "name": operator.name,
            "kind": operator.kind,
            "device_stage": plan.rank_of[operator.name],
            "cut": _cut_text(plan, operator.name),
            "transfers": needed.get(operator.name, []),
        }
        for operator in plan.graph.operators
    ]
