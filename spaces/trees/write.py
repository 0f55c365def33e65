"""Writer of a strategy tree as YAML."""

from typing import Any

import yaml

from forerun.spaces.strategies import SPELLING
from forerun.spaces.trees.names import ranges_text
from forerun.spaces.trees.values import ZERO_TENSORS, Node


def tree_data(node: Node) -> dict[str, Any]:
    """Return a node as plain data, without settings of its parent."""
    data: dict[str, Any] = {"name": node.name} if node.name else {}
    if node.layers is not None:
        data["layers"] = node.layers[0] if len(node.layers) == 1 else list(node.layers)
    if node.modules is not None:
        data["modules"] = node.modules[0] if len(node.modules) == 1 else list(node.modules)
    if node.devices:
        data["devices"] = ranges_text(node.devices)
    for key, part in (("schedule", _schedule(node)), ("compute", _compute(node)), ("memory", _memory(node))):
        if part:
            data[key] = part
    if node.children:
        data["children"] = [tree_data(child) for child in node.children]
    return data


def tree_yaml(node: Node) -> str:
    """Return a tree as YAML, one line for each node without children."""
    data = tree_data(node)
    children = data.pop("children", [])
    lines = [_line(key, value) for key, value in data.items()]
    return "\n".join([*lines, *_children(children, 0)]) + "\n"


def _children(children: list[dict[str, Any]], depth: int) -> list[str]:
    if not children:
        return []
    lines = ["  " * depth + "children:"]
    for child in children:
        below = child.pop("children", [])
        entries = [_line(key, value) for key, value in child.items()]
        indent = "  " * (depth + 1)
        lines += [f"{indent}{'- ' if not number else '  '}{line}" for number, line in enumerate(entries)]
        lines += _children(below, depth + 2)
    return lines


def _line(key: str, value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).strip()
    return f"{key}: {text.removesuffix('...').strip()}"


def _schedule(node: Node) -> dict[str, Any]:
    timing = node.schedule
    flight = timing.in_flight
    values = {
        "order": None if timing.order is None else SPELLING["schedule"][timing.order],
        "microbatches": timing.microbatches,
        "in_flight": flight[0] if flight is not None and len(flight) == 1 else None if flight is None else list(flight),
        "recompute": None if timing.recompute is None else SPELLING["recompute"][timing.recompute],
    }
    return {key: value for key, value in values.items() if value is not None}


def _compute(node: Node) -> dict[str, Any]:
    names = ("dp", "tp", "cp", "ep", "etp", "sp")
    values = {name: getattr(node.compute, name) for name in names}
    settings = {name: value for name, value in values.items() if value is not None}
    if node.compute.cut is not None:
        settings["cut"] = dict(node.compute.cut)
    if node.compute.deal is not None:
        settings["deal"] = node.compute.deal
    return settings


def _memory(node: Node) -> dict[str, Any]:
    values = {name: getattr(node.memory, name) for name in ZERO_TENSORS}
    data: dict[str, Any] = {}
    if all(value is not None for value in values.values()) and list(values.values()) == sorted(
        values.values(), reverse=True
    ):
        data["zero"] = sum(map(bool, values.values()))
    else:
        data |= {n: "sharded" if v else "replicated" for n, v in values.items() if v is not None}
    if node.memory.shard is not None:
        data["shard"] = node.memory.shard or "all"
    if node.memory.host is not None:
        data["host"] = sorted(node.memory.host)
    return data
