"""Links shared by concurrent transfers under max-min fairness (progressive filling).

Progressive filling: raise all rates together until a link is full, fix the rates of its transfers, continue with the
others (Bertsekas and Gallager, Data Networks, section 6.5.2). Transfers over one route are a flow group
(``flow_groups.py``); flow groups that share links are a component (``components.py``). Components do not affect each
other."""

from collections.abc import Hashable, Sequence

from forerun.simulator.events.engine.components import ComponentOfFew, ComponentOfMany, ComponentOfOne, States
from forerun.simulator.events.engine.flow_groups import Component, FlowGroup, flow_groups_of, groups_that_meet
from forerun.simulator.events.engine.graph import EventGraph

MOST_REMEMBERED = 256
"""Number of flow groups up to which a component caches its states; reading these sizes takes a microsecond."""


def shared_links(graph: EventGraph) -> tuple[dict[tuple[int, ...], FlowGroup], list[Component]]:
    """Return the flow group of every route that a graph's transfers may take, and the components of these groups, both
    in the order of their links.
    """
    routes = {route for _, route in graph.transfers.values()}.union(graph.routes)
    flow_group_of = flow_groups_of(sorted(routes), graph.weights)
    components: list[Component] = []
    known: dict[Hashable, States] = {}
    for number, group in enumerate(groups_that_meet(flow_group_of.values())):
        component = _component(number, group, graph.capacity_bytes_per_s, known)
        components.append(component)
        for flow_group in group:
            flow_group.component = component
    return flow_group_of, components


def _component(
    number: int, group: Sequence[FlowGroup], capacity_bytes_per_s: Sequence[float], known: dict[Hashable, States]
) -> Component:
    if len(group) == 1:
        return ComponentOfOne(number, group, capacity_bytes_per_s)
    if len(group) > MOST_REMEMBERED:
        return ComponentOfMany(number, group, capacity_bytes_per_s)
    return ComponentOfFew(
        number, group, capacity_bytes_per_s, known.setdefault(_shape(group, capacity_bytes_per_s), {})
    )


def _shape(group: Sequence[FlowGroup], capacity_bytes_per_s: Sequence[float]) -> Hashable:
    """Return the cache key of a component's rates; components with one key, like those of equal replicas, share the
    cache.
    """
    links: dict[int, int] = {}
    routes = tuple(tuple(links.setdefault(link, len(links)) for link in flow_group.route) for flow_group in group)
    weights = tuple(flow_group.weights for flow_group in group)
    return routes, weights, tuple(capacity_bytes_per_s[link] for link in links)
