"""Explanation of a strategy's cost: text, and changes of one axis."""

import dataclasses
import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forerun.search.answer.explain.neighbours import AxisStep, neighbours
from forerun.search.answer.explain.why import bound_by
from forerun.search.answer.intervals import certain
from forerun.search.board.notebook import Picture, changes_html, step_picture
from forerun.search.board.requested import ScoredChange
from forerun.search.board.rows import GIB, Row, rows_of
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.scorer import Scorer
from forerun.simulator import score as simulator_score
from forerun.simulator.assignment.memory import memory_by_stage
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.operators import RankOperator, busiest_rank_operators
from forerun.spaces.errors import RequestError
from forerun.spaces.frames import frame_of
from forerun.spaces.strategies import Context, Strategy

MEANING: Mapping[str, str] = {
    "compute": "kernels of the forward and backward pass",
    "recompute": "forward work repeated in the backward pass",
    "tensor": "exposed tensor-parallel communication",
    "context": "exposed context-parallel communication",
    "expert": "exposed expert-parallel communication",
    "pipeline": "exposed sends between pipeline stages",
    "bubble": "idle time of stages that wait for others",
    "data": "exposed gradient reduction and parameter gather",
    "optimizer": "update of the parameters",
    "host": "idle time until the host launches kernels",
    "forward": "kernels of the forward pass, with waits for the host",
    "backward": "kernels of the backward pass, with waits for the host",
    "halo": "borders of pictures sent between parts",
    "collective": "features and gradients exchanged between the devices of a replica",
    "tail": "parts of the picture brought together",
    "p2p": "sends between pipeline stages",
    "gradient": "exposed gradient exchange",
    "straggler wait": "wait for the slowest device",
    "update": "update of the parameters",
    "input": "wait for samples to be loaded",
    "parameters": "weights in training precision",
    "gradients": "gradient buffers",
    "optimizer states": "moments and master weights",
    "activations": "kept for the backward pass, all microbatches in flight",
    "working": "recompute working set and transient tensors",
    "logits": "vocabulary logits and loss",
    "buffers": "communication and gather buffers",
    "in use": "parameters, their states and activations",
    "reserve": "device context, communicators, fragmentation",
}
"""Meanings of the parts of a step and of memory, for legends."""
MEMORY_MEANING: Mapping[str, str] = {**MEANING, "optimizer": MEANING["optimizer states"]}
"""Meanings of the parts of memory by their names in rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One strategy in depth."""

    row: Row
    text: str
    """Description of the bottlenecks."""
    changes: tuple[ScoredChange, ...]
    """Changes of one axis, fastest first."""
    busiest: int
    """The pipeline stage whose ``operators`` are listed."""
    operators: tuple[RankOperator, ...]
    """Operators of this stage, slowest first."""
    stages: tuple[Mapping[str, float], ...]
    """Bytes of every pipeline stage by part."""

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        return {
            "row": self.row.to_json(),
            "text": self.text,
            "helping": [change.to_json() for change in self.helping()],
            "hurting": [change.to_json() for change in self.hurting()],
            "saving_memory": [change.to_json() for change in self.saving_memory()],
            "changes": [change.to_json() for change in self.changes],
            "operators": [{"stage": self.busiest, **dataclasses.asdict(one)} for one in self.operators],
            "stages": [{part: size / GIB for part, size in stage.items()} for stage in self.stages],
        }

    def to_pandas(self) -> Any:
        """Return the changes as a ``pandas.DataFrame``, fastest first.

        Raises
        ------
        RequestError
            Pandas is not installed.
        """
        from forerun.search.board.leaderboard import flat_line

        return frame_of(
            [
                {
                    "axis": change.axis,
                    "change": change.words,
                    "added_s": change.added_s,
                    **flat_line(change.row.to_json()),
                }
                for change in self.changes
            ]
        )

    def plot(self) -> Picture:
        """Draw the step, and the steps after the most helpful changes, as bars of parts on one scale."""
        steps = {self.row.name: self.row.breakdown_s}
        return step_picture(steps | {change.words: change.row.breakdown_s for change in self.helping()})

    def _repr_html_(self) -> str:
        """Return the HTML of a notebook: strategy, text, and changes that help, hurt and save memory."""
        groups = (("helps", self.helping()), ("hurts", self.hurting()), ("saves memory", self.saving_memory()))
        tables = [
            changes_html([change.to_json() for change in changes], title=f"what {name} most")
            for name, changes in groups
            if changes
        ]
        return f"{self.row._repr_html_()}<p>{html.escape(self.text)}</p>{''.join(tables)}"

    def helping(self, count: int = 3) -> tuple[ScoredChange, ...]:
        """Return the changes with the largest gains that fit, or need no more memory than this row, best first."""
        peak_gib = self.row.peak_memory_gib
        fitting = (change for change in self.changes if change.row.fits or change.row.peak_memory_gib <= peak_gib)
        return tuple(change for change in fitting if change.added_s < 0)[:count]

    def hurting(self, count: int = 3) -> tuple[ScoredChange, ...]:
        """Return the changes with the largest losses, worst first."""
        return tuple(change for change in self.changes[::-1] if change.added_s > 0)[:count]

    def saving_memory(self) -> tuple[ScoredChange, ...]:
        """Return the changes with the largest savings of peak memory, best first."""
        lower = [change for change in self.changes if change.row.peak_memory_gib < self.row.peak_memory_gib]
        return tuple(sorted(lower, key=lambda change: change.row.peak_memory_gib)[:3])


def explain_strategy(
    context: AnyContext,
    strategy: Strategy,
    *,
    usd_per_gpu_hour: float | None = None,
    score: Scorer = simulator_score,
) -> Explanation:
    """Score a legal strategy and all its neighbours in one axis.

    Raises
    ------
    RequestError
        The strategy is a split, whose row already has its bottlenecks.
    """
    if not isinstance(context, Context):
        raise RequestError(f"{strategy} is a split: simulate() lists its bottlenecks (row.graph.bottlenecks)")
    steps: tuple[AxisStep, ...] = neighbours(context, strategy)
    row, *others = rows_of(
        context,
        [strategy, *(change.strategy for change in steps)],
        usd_per_gpu_hour=usd_per_gpu_hour,
        score=score,
    )
    changes = [
        ScoredChange(axis=change.axis, words=change.words, row=other, added_s=other.step_time_s - row.step_time_s)
        for change, other in zip(steps, others, strict=True)
    ]
    changes.sort(key=lambda change: change.added_s)
    busiest, operators = busiest_rank_operators(assign(context, strategy))
    return Explanation(
        row=certain(context, (row,))[0],
        text=bound_by(row),
        changes=tuple(changes),
        busiest=busiest,
        operators=operators,
        stages=memory_by_stage(context, strategy),
    )
