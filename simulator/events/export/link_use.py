"""Use of the cluster's links during a step, as plain data."""

from typing import Any

from forerun.simulator.events.step.result import EventResult

_SHOWN = 24
"""Number of listed links; the busiest of hundreds suffice."""


def link_use(result: EventResult) -> list[dict[str, Any]]:
    """Return the busiest links of a step with contention.

    ``utilisation``: share of the step during which a link is full or equivalent; protocol overhead counts as traffic.
    ``alike``: number of links with the same use; ``shared``: whether flows can slow each other down on it.
    """
    contention = result.contention
    if contention is None:
        return []
    sent = result.sent_bytes
    shared = {id(link) for link in contention.shared}
    rows = []
    for link in contention.links:
        size_bytes = sum(weight * sent.get(key, 0.0) for key, weight in link.weight.items())
        whole = link.capacity_bytes_per_s * result.step_time_s
        rows.append(
            {
                "link": link.name,
                "alike": link.alike,
                "bytes_per_s": link.capacity_bytes_per_s,
                "utilisation": size_bytes / whole if whole else 0.0,
                "shared": id(link) in shared,
            }
        )
    rows.sort(key=lambda row: -float(str(row["utilisation"])))
    return rows[:_SHOWN]
