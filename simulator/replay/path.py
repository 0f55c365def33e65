"""Parts of the critical path, and its longest pieces."""

from collections import defaultdict
from dataclasses import dataclass

from forerun.simulator.replay.graph import GAP, JOIN, KINDS
from forerun.simulator.replay.replay import Replay

_WORDS = {**dict(enumerate(KINDS)), GAP: "host", JOIN: "communication"}
_WORDS.update({3: "communication", 4: "communication", 5: "communication"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPart:
    """One name on one rank along the critical path: ``count`` tasks, ``seconds`` of all steps."""

    name: str
    kind: str
    rank: int
    count: int
    seconds: float


def path_parts(result: Replay) -> tuple[PathPart, ...]:
    """Return the critical path by name and rank, longest first; seconds add up to the replayed run."""
    seconds: dict[tuple[str, str, int], float] = defaultdict(float)
    count: dict[tuple[str, str, int], int] = defaultdict(int)
    graph, now_s = result.graph, 0.0
    places = {trace.rank: place for place, trace in enumerate(graph.traces)}
    for task in result.path:
        kind, rank = graph.graph.kind[task], int(graph.rank[task])
        end_s = result.run.end_s[task]
        if kind != JOIN:
            trace = graph.traces[places[rank]]
            span = graph.graph.tag[task][0]
            assert isinstance(span, int)
            word = "host" if kind == GAP else trace.title(span)
            key = ("between operators" if kind == GAP else word, _WORDS[kind], rank)
            seconds[key] += end_s - now_s
            count[key] += 1
        now_s = end_s
    parts = [
        PathPart(name=name, kind=kind, rank=rank, count=count[name, kind, rank], seconds=value)
        for (name, kind, rank), value in seconds.items()
    ]
    return tuple(sorted(parts, key=lambda part: (-part.seconds, part.name, part.rank)))
