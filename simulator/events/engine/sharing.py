"""Links shared by concurrent transfers with max-min fairness (progressive filling).

Progressive filling: raise all rates together until a link is full, freeze what crosses it, go on with the rest
(Bertsekas and Gallager, Data Networks, section 6.5.2). Transfers over one route are a bundle (``bundles.py``); bundles
that meet on links are a pool (``pools.py``), and no pool ever feels another.
"""

from collections.abc import Hashable, Sequence

from forerun.simulator.events.engine.bundles import Bundle, Pool, bundles_of, groups_that_meet
from forerun.simulator.events.engine.graph import Graph
from forerun.simulator.events.engine.pools import PoolOfFew, PoolOfMany, PoolOfOne, States

MOST_REMEMBERED = 256
"""Bundles up to which a pool remembers its states; to read that many sizes takes a microsecond."""


def shared_links(graph: Graph) -> tuple[dict[tuple[int, ...], Bundle], list[Pool]]:
    """Return the bundle of every route that a graph's transfers may take, and the pools that these make, both in the
    order of their links."""
    routes = {route for _, route in graph.transfers.values()}.union(graph.routes)
    bundle_of = bundles_of(sorted(routes), graph.weights)
    pools: list[Pool] = []
    known: dict[Hashable, States] = {}
    for number, group in enumerate(groups_that_meet(bundle_of.values())):
        pool = _pool(number, group, graph.capacity_bytes_per_s, known)
        pools.append(pool)
        for bundle in group:
            bundle.pool = pool
    return bundle_of, pools


def _pool(
    number: int, group: Sequence[Bundle], capacity_bytes_per_s: Sequence[float], known: dict[Hashable, States]
) -> Pool:
    if len(group) == 1:
        return PoolOfOne(number, group, capacity_bytes_per_s)
    if len(group) > MOST_REMEMBERED:
        return PoolOfMany(number, group, capacity_bytes_per_s)
    return PoolOfFew(number, group, capacity_bytes_per_s, known.setdefault(_shape(group, capacity_bytes_per_s), {}))


def _shape(group: Sequence[Bundle], capacity_bytes_per_s: Sequence[float]) -> Hashable:
    """Return what the rates of a pool depend on; pools of one shape learn from each other, as those of replicas do."""
    links: dict[int, int] = {}
    routes = tuple(tuple(links.setdefault(link, len(links)) for link in bundle.route) for bundle in group)
    weights = tuple(bundle.weights for bundle in group)
    return routes, weights, tuple(capacity_bytes_per_s[link] for link in links)
