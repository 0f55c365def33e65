"""A replay as plain data: the document of ``replay --json``."""

from dataclasses import asdict
from math import isfinite
from typing import Any

from forerun.simulator.replay.analysis import Analysis


def summary(analysis: Analysis, *, link_bytes_per_s: float | None = None, top: int = 20) -> dict[str, Any]:
    """Return the document. Times in seconds, rates in bytes per second, shares and errors as fractions."""
    result, graph, path_s = analysis.replay, analysis.replay.graph, _path_s(analysis)
    return {
        "schema": 1,
        "traces": [
            {
                "rank": trace.rank,
                "source": trace.source,
                "host": trace.host,
                "format": trace.version,
                "spans": len(trace),
            }
            for trace in graph.traces
        ],
        "world": max(graph.traces[0].world, len(graph.traces)),
        "steps": len(result.measured_s),
        "steps_marked": all(trace.marked for trace in graph.traces),
        "exchanges": len(graph.matching.exchanges),
        "unmatched_messages": graph.matching.unmatched,
        "clocks": _clocks(analysis),
        "step_time_s": result.step_s,
        "replayed_step_time_s": result.replayed_step_s,
        "replay_error": result.error,
        "averaged_replay_error": None if analysis.averaged is None else analysis.averaged.error,
        "paced_replay_error": None if analysis.paced is None else analysis.paced.error,
        "measured_s": result.measured_s.tolist(),
        "replayed_s": result.replayed_s.tolist(),
        "ranks": [
            {**asdict(use), "waiting_for_s": _waited_for(analysis, place)} for place, use in enumerate(analysis.uses)
        ],
        "critical_share": _critical_shares(analysis),
        "critical_path": [{**asdict(part), "share": part.seconds / path_s} for part in analysis.path[:top]],
        "stragglers": [asdict(one) for one in analysis.stragglers],
        "overlap": [asdict(one) for one in analysis.overlaps],
        "links": [
            {
                **{key: _number(value) for key, value in asdict(one).items()},
                "share_of_link": _number(one.bandwidth_bytes_per_s / link_bytes_per_s) if link_bytes_per_s else None,
            }
            for one in analysis.links
        ],
        "slow_messages": [
            {key: _number(value) for key, value in asdict(one).items()} for one in analysis.slow_messages[:top]
        ],
    }


def _critical_shares(analysis: Analysis) -> dict[str, float]:
    """Return the share of each kind of task in the critical path."""
    shares: dict[str, float] = {}
    path_s = _path_s(analysis)
    for part in analysis.path:
        shares[part.kind] = shares.get(part.kind, 0.0) + part.seconds / path_s
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _path_s(analysis: Analysis) -> float:
    return sum(part.seconds for part in analysis.path) or 1.0


def _waited_for(analysis: Analysis, place: int) -> dict[str, float]:
    """Return the seconds per step of one rank's waits for each other rank, by its number, without zeros."""
    waits = analysis.blame_s[place].tolist()
    return {str(use.rank): seconds for use, seconds in zip(analysis.uses, waits, strict=True) if seconds > 0}


def _clocks(analysis: Analysis) -> dict[str, Any]:
    clocks = analysis.replay.graph.clocks
    return {
        "hosts": clocks.hosts,
        "offset_s": clocks.offset_s.tolist(),
        "drift": clocks.drift.tolist(),
        "residual_s": clocks.residual_s,
        "broken_laws": clocks.broken,
        "hosts_unlinked": clocks.unlinked,
    }


def _number(value: Any) -> Any:
    """Return None for NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not isfinite(value) else value
