"""Execution of a run's graph, and comparison with the run."""

from dataclasses import dataclass

import numpy as np

from forerun.simulator.events.engine.engine import Execution, execute
from forerun.simulator.events.step.result import critical_path
from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.trace import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """An executed run.

    ``measured_s``, ``replayed_s``: seconds of every step, from the end of the previous step over all ranks. ``path``:
    tasks of the critical path, first to last.
    """

    graph: ReplayGraph
    run: Execution
    measured_s: Floats
    replayed_s: Floats
    path: tuple[int, ...]

    @property
    def step_s(self) -> float:
        """Mean measured seconds of a step."""
        return float(self.measured_s.mean())

    @property
    def replayed_step_s(self) -> float:
        """Mean replayed seconds of a step."""
        return float(self.replayed_s.mean())

    @property
    def error(self) -> float:
        """Replayed over measured time of all steps, less one."""
        return self.replayed_step_s / self.step_s - 1


def replay(graph: ReplayGraph) -> Replay:
    """Execute a graph.

    Raises:
        RequestError: spans wait for each other in a cycle, which unaligned clocks can cause.
    """
    run = execute(graph.graph)
    return Replay(
        graph=graph,
        run=run,
        measured_s=np.diff(graph.finish_s, prepend=0.0),
        replayed_s=np.diff(_finish(graph, run), prepend=0.0),
        path=critical_path(graph.graph, run),
    )


def _finish(graph: ReplayGraph, run: Execution) -> Floats:
    """Return the end of every step over all ranks."""
    finish = np.zeros(len(graph.finish_s))
    counted = graph.step >= 0
    np.maximum.at(finish, graph.step[counted], np.array(run.end_s)[counted])
    return np.maximum.accumulate(finish)
