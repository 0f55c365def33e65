"""Number of devices that a search may use: a count, a range, or the number that an hourly price rents."""

import re
from dataclasses import dataclass

from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError

_COUNT = re.compile(r"[0-9]{1,9}")
_RANGE = re.compile(r"([0-9]{1,9})\s*(?:\.\.|-|:)\s*([0-9]{1,9})")
_MONEY = re.compile(r"\$?\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(?:usd|\$)?\s*(?:(?:/|per)\s*h(?:our)?)?", re.IGNORECASE)
# A range with more node counts is reduced to those that factor well.
_FEW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """At least ``least`` and at most ``most`` devices, or as many as ``usd_per_hour`` rents (``most`` is None).

    Raises:
        RequestError: an empty range, a count below 1, or no bound at all.
    """

    least: int = 1
    most: int | None = None
    usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        if self.most is None and self.usd_per_hour is None:
            raise RequestError("a budget is a count of devices (512), a range (64..512) or money (200 USD/h)")
        if self.least < 1:
            raise RequestError(f"a budget has at least 1 device, but got {self.least}")
        if self.most is not None and self.most < self.least:
            raise RequestError(
                f"a range is LOW..HIGH, but got {self.least}..{self.most}; use {self.most}..{self.least}"
            )
        if self.usd_per_hour is not None and not self.usd_per_hour > 0:
            raise RequestError(f"a budget in USD per hour is above 0, but got {self.usd_per_hour}")

    def device_counts(self, cluster: Cluster) -> tuple[int, ...]:
        """Return the counts of devices to search on ``cluster``, ascending.

        A single count is returned as it is. A range gives its powers of two inside a node and whole nodes beyond; of
        many node counts only 1, 3, 5, 7 or 9 times a power of two (times the nodes of a scale-up domain of several
        nodes), and the largest.

        Raises:
            RequestError: more devices than the cluster has, a count that leaves a node partly used, a range without a
                usable count, or money without a price.
        """
        least, most = self.least, self._most(cluster)
        if least > cluster.max_devices or (self.usd_per_hour is None and most > cluster.max_devices):
            raise RequestError(
                f"{cluster.name} has at most {cluster.max_devices} devices, but got {self}; ask for fewer, or describe "
                "a larger one (max_devices: and network: of a cluster's YAML)"
            )
        most = min(most, cluster.max_devices)
        node = cluster.devices_per_node
        if least == most and self.usd_per_hour is None:
            if least > node and least % node:
                below = least // node * node
                above = f" or {below + node}" if below + node <= cluster.max_devices else ""
                raise RequestError(f"{least} devices do not fill whole nodes of {node}; use {below}{above}")
            return (least,)
        inside = [2**power for power in range(node.bit_length()) if least <= 2**power <= min(most, node - 1)]
        nodes = _node_counts(-(-least // node), most // node, max(1, cluster.scale_up_size // node))
        counts = (*inside, *(node * count for count in nodes))
        if not counts and most < node:
            return tuple(range(least, most + 1))
        if not counts:
            fix = f"use {most // node * node} or {(most // node + 1) * node}"
            raise RequestError(f"no whole number of nodes of {node} devices is within {self}; {fix}")
        return counts

    def __str__(self) -> str:
        if self.usd_per_hour is not None:
            return f"{self.usd_per_hour:g} USD/h"
        return str(self.least) if self.least == self.most else f"{self.least}..{self.most}"

    def _most(self, cluster: Cluster) -> int:
        if self.usd_per_hour is None:
            return self.most or self.least
        price = cluster.usd_per_device_hour
        if price is None:
            hint = cluster.device.usd_per_hour
            published = f"; published for {cluster.device.title}: {hint[0]:g} to {hint[1]:g}" if hint else ""
            raise RequestError(f"a budget in USD per hour needs your price per device and hour{published}")
        rented = int(self.usd_per_hour / price * (1 + 1e-12))
        if rented < 1:
            raise RequestError(f"{self} rents no device at {price:g} USD per hour each; use at least {price:g} USD/h")
        return rented if self.most is None else min(rented, self.most)


def parse_budget(text: str) -> Budget:
    """Return the budget in ``text``: ``512``, ``64..512``, ``200 USD/h`` or ``$200/h``.

    Raises:
        RequestError: the text has another form, or the bounds are out of order.
    """
    stripped = text.strip()
    if _COUNT.fullmatch(stripped):
        return Budget(least=int(stripped), most=int(stripped))
    if bounds := _RANGE.fullmatch(stripped):
        return Budget(least=int(bounds[1]), most=int(bounds[2]))
    money = _MONEY.fullmatch(stripped)
    if money is not None and re.search(r"usd|\$", stripped, re.IGNORECASE):
        return Budget(usd_per_hour=float(money[1]))
    raise RequestError(f"a budget is a count (512), a range (64..512) or money (200 USD/h), but got {stripped[:40]!r}")


def _node_counts(least: int, most: int, domain_nodes: int) -> list[int]:
    """Return node counts between ``least`` and ``most``: all of them if few, otherwise those that factor well."""
    least = max(least, 1)
    if most - least < _FEW:
        return list(range(least, most + 1))
    good = {odd * domain * 2**power for odd in (1, 3, 5, 7, 9) for domain in (1, domain_nodes) for power in range(31)}
    return sorted({count for count in good if least <= count <= most} | {most})
