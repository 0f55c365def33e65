"""An event-level result as plain data, which ``simulate --json`` adds to its row."""

from collections import Counter
from typing import Any

from forerun.simulator.events.engine.kinds import KINDS, STREAMS
from forerun.simulator.events.step.result import EventResult

_GIB = 2.0**30


def event_summary(result: EventResult) -> dict[str, Any]:
    """Return bubble share, tasks by kind, use of every stage and stream, and the critical path (seconds, shares 0 to
    1).

    With contention also ``replicas`` (number represented by each simulated one) and ``links`` (the busiest ones).
    """
    return {
        "step_time_s": result.step_time_s,
        "bubble_share": result.bubble_share,
        "slowest_stage": result.slowest,
        "tasks": _tasks(result),
        "critical_share": {part: _share(value, result.step_time_s) for part, value in result.critical_s.items()},
        "critical_path": _path(result),
        "stages": _stages(result),
        **_shared(result),
        **({"simulated_in_s": dict(result.took_s)} if result.took_s else {}),
    }


def _tasks(result: EventResult) -> dict[str, int]:
    """Return the number of simulated tasks of each kind."""
    counts = Counter(KINDS[kind] for kind in result.records.kinds())
    return dict(sorted(counts.items()))


def _shared(result: EventResult) -> dict[str, Any]:
    """Return the results of contention: number of distinct replicas, and use of links."""
    if result.contention is None:
        return {}
    colours = list(result.contention.colours)
    return {
        "replicas": [colours.count(colour) for colour in range(result.contention.simulated)],
        "links": link_use(result),
    }


def _share(value: float, total: float) -> float:
    return value / total if total else 0.0


def _stages(result: EventResult) -> list[dict[str, Any]]:
    """Return one entry per pipeline rank; ``stream_share``: share of the step during which each stream is occupied."""
    occupied = result.occupied_s
    return [
        {
            "stage": number,
            "busy_s": stage.busy_s,
            "exposed_s": stage.exposed_s,
            "idle_s": stage.idle_s,
            "breakdown_s": dict(stage.time_s),
            "stream_share": {
                name: _share(occupied[len(STREAMS) * number + place], result.step_time_s)
                for place, name in enumerate(STREAMS)
            },
            "peak_live_gib": stage.peak_bytes / _GIB,
            "peak_s": stage.peak_s,
            "peak_task": stage.peak_task,
        }
        for number, stage in enumerate(result.stages)
    ]


def _path(result: EventResult) -> list[dict[str, Any]]:
    """Return the critical path; consecutive tasks of one kind on one stream are one entry with their number."""
    records = result.records
    entries: list[dict[str, Any]] = []
    now_s = 0.0
    for task in result.critical_path:
        stream, end_s = records.streams_of(task)[0], float(records.end_s[task])
        place = {
            "kind": KINDS[records.kind_of(task)],
            "stage": stream // len(STREAMS),
            "stream": STREAMS[stream % len(STREAMS)],
        }
        if entries and all(entries[-1][key] == value for key, value in place.items()):
            entries[-1]["tasks"] += 1
            entries[-1]["end_s"] = end_s
        else:
            entries.append({**place, "tasks": 1, "start_s": now_s, "end_s": end_s})
        now_s = end_s
    return entries


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
        capacity_bytes = link.capacity_bytes_per_s * result.step_time_s
        rows.append(
            {
                "link": link.name,
                "alike": link.alike,
                "bytes_per_s": link.capacity_bytes_per_s,
                "utilisation": size_bytes / capacity_bytes if capacity_bytes else 0.0,
                "shared": id(link) in shared,
            }
        )
    rows.sort(key=lambda row: -float(str(row["utilisation"])))
    return rows[:_SHOWN]
