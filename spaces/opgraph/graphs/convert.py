"""Conversion of the record of a graph into an operator graph."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.opgraph.graphs.record import RecordedGraph
from forerun.spaces.opgraph.graphs.rules import Call, Rule, generic
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.opgraph.operator import Kind, Operator

SHOWN = 6
"""Number of operators without a rule named in a message."""


def model_of_graph(
    graph: RecordedGraph, rules: Mapping[str, Rule], *, allow_generic: bool, skipped: frozenset[str] = frozenset()
) -> GraphModel:
    """Return the operators of ``graph`` by ``rules``.

    Nodes named in ``skipped``, and nodes without an activation, have no cost (shape arithmetic, constants, counters).

    Raises:
        RequestError: an operator has no rule and ``allow_generic`` is not set, or a law of operators is broken.
    """
    made: dict[str, str] = {name: "" for name in graph.inputs}  # value -> operator that produces it; "": an input
    operators: list[Operator] = []
    missing: dict[str, int] = {}
    names: set[str] = set()
    read: list[tuple[str, ...]] = []
    for node in graph.nodes:
        tensors = tuple(name for name in node.inputs if name in made)
        if node.target in skipped or not tensors or not node.outputs:
            continue
        rule = rules.get(node.target)
        if rule is None:
            missing[node.target] = missing.get(node.target, 0) + 1
            rule = generic
            blind = next((value for value in node.outputs if value and value not in graph.shapes), None)
            if blind is not None:
                raise RequestError(
                    f"{graph.source}: no cost rule for {node.target} ({node.name}), and nothing says the shape of its "
                    f"output {blind!r}; state the shape in the file, and add --allow-generic to cost it by bytes and "
                    "operations"
                )
        weights = tuple(name for name in node.inputs if name in graph.weights)
        call = Call(graph=graph, node=node, tensors=tensors, weights=weights)
        name = node.name if node.name not in names else f"{node.name}.{len(operators)}"
        names.add(name)
        operator = _operator(call, rule, made, name)
        operators.append(operator)
        read.append(weights)
        for value in node.outputs:
            if value:
                made[value] = operator.name
    if missing and not allow_generic:
        raise _without_rule(graph, missing, rules)
    if not operators:
        raise RequestError(f"{graph.source}: no node of the graph works on its input")
    notes = list(graph.notes)
    if missing:
        counted = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items()))
        notes.append(f"costed by bytes and operations alone: {counted}")
    shared = _shared(graph, operators, read)
    if shared:
        notes.append(f"parameters that several operators share count once: {', '.join(sorted(shared)[:SHOWN])}")
    return GraphModel(
        name=graph.name,
        source=graph.source,
        input=graph.per_sample(graph.shapes[graph.inputs[0]]),
        operators=_tied(operators, shared.values()),
        sample="sample",
        notes=tuple(notes),
    )


def _shared(
    graph: RecordedGraph, operators: Sequence[Operator], read: Sequence[tuple[str, ...]]
) -> dict[str, list[int]]:
    """Return the weights of several operators with these operators' indices; ``read``: inputs of each."""
    users: dict[str, list[int]] = {}
    for place, (operator, names) in enumerate(zip(operators, read, strict=True)):
        for name in names:
            if math.prod(graph.shapes.get(name, ())) == operator.weight_elements:
                users.setdefault(name, []).append(place)
    return {name: places for name, places in users.items() if len(places) > 1}


def _tied(operators: Sequence[Operator], shared: Iterable[Sequence[int]]) -> tuple[Operator, ...]:
    """Let one operator of each group in ``shared`` count their weight."""
    tied = list(operators)
    for places in shared:
        # The gradient of a product is dense; only the gradient of a table is limited to the looked-up rows.
        keeper = max(places, key=lambda place: (operators[place].kind is not Kind.EMBEDDING, place))
        for place in set(places) - {keeper}:
            tied[place] = replace(operators[place], tied=True)
    return tuple(tied)


def _operator(call: Call, rule: Rule, made: Mapping[str, str], name: str) -> Operator:
    facts = {"output": call.output, **rule(call)}
    shapes = [call.sample(name) for name in call.tensors]
    try:
        return Operator(
            name=name,
            block=call.node.block,
            input=shapes[0],
            extra_inputs=tuple(shapes[1:]),
            inputs=tuple(dict.fromkeys(made[tensor] for tensor in call.tensors if made[tensor])),
            **facts,
        )
    except RequestError as error:
        raise call.refuse(f"breaks a law: {error}") from None


def _without_rule(graph: RecordedGraph, missing: Mapping[str, int], rules: Mapping[str, Rule]) -> RequestError:
    names = sorted(missing)
    first = unknown("operator", names[0], rules) if len(names) == 1 else None
    shown = ", ".join(f"{name} ({missing[name]})" for name in names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    near = f" ({str(first).rpartition('; ')[2]})" if first and "did you mean" in str(first) else ""
    return RequestError(
        f"{graph.source}: no cost rule for {shown}{near}; add --allow-generic to cost "
        f"{'it' if len(names) == 1 else 'them'} by bytes and operations"
    )
