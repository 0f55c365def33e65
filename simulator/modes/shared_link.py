"""Data-parallel jobs whose exchanges share links by max-min fairness, with an event per pass and message."""

from collections.abc import Sequence
from dataclasses import dataclass

from forerun.simulator.events.engine.engine import execute
from forerun.simulator.events.engine.graph import TaskGraph

STEPS = 40
"""Steps of the slowest job; the other jobs run for the same time. The first quarter counts as their start."""
KINDS = ("compute", "exchange")
COMPUTE, EXCHANGE = range(len(KINDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMessage:
    """One message of a step.

    A message is ready ``ready_s`` after the step starts and takes ``alone_s`` on an idle link, which ``sent_bytes``
    cross.
    """

    ready_s: float
    alone_s: float
    sent_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedJob:
    """A step of a job.

    A job alone takes ``step_s`` per step, including ``passes_s`` for its passes. ``messages`` are sent one after the
    other; the remaining time follows passes and messages.
    """

    step_s: float
    passes_s: float
    messages: tuple[SharedMessage, ...] = ()

    @property
    def rest_s(self) -> float:
        """Time after passes and messages: update, rendezvous, waits."""
        now_s = 0.0
        for message in self.messages:
            now_s = max(now_s, message.ready_s) + message.alone_s
        return max(self.step_s - max(now_s, self.passes_s), 0.0)


def steps_together(jobs: Sequence[SharedJob], shared_bytes_per_s: float | None) -> list[float]:
    """Compute the step time of every job while all run and share a link fairly.

    ``shared_bytes_per_s`` is the rate of the link (None: no link is shared). Jobs that send nothing are never slowed.
    """
    crossing = [number for number, job in enumerate(jobs) if job.messages]
    steps_s = [job.step_s for job in jobs]
    if shared_bytes_per_s is None or not crossing:
        return steps_s
    graph = TaskGraph(KINDS)
    link = graph.add_link("shared", shared_bytes_per_s)
    longest_s = max(jobs[number].step_s for number in crossing) * STEPS
    ends: dict[int, list[int]] = {}
    for number in crossing:
        job, ends[number] = jobs[number], []
        # Slowdown of a message by the job's own ports, where messages of different sizes reach different rates.
        ports = [
            graph.add_link(f"job {number} message {place}", message.sent_bytes / message.alone_s)
            for place, message in enumerate(job.messages)
        ]
        end: tuple[int, ...] = ()
        for step in range(round(longest_s / job.step_s)):
            tag = (number, step)
            last = [graph.add(COMPUTE, job.passes_s, after=end, tag=tag)]
            for message, port in zip(job.messages, ports, strict=True):
                ready = graph.add(COMPUTE, message.ready_s, after=end, tag=tag)
                sent = graph.add_transfer(EXCHANGE, message.sent_bytes, (port, link), after=(ready, *last[1:]), tag=tag)
                last = [last[0], sent]
            end = (graph.add(COMPUTE, job.rest_s, after=last, tag=tag),)
            ends[number] += end
    run = execute(graph)
    # All are under way from the end of the first quarter to the end of the first job that stops.
    until_s = min(run.end_s[step_ends[-1]] for step_ends in ends.values())
    for number, step_ends in ends.items():
        moments = [run.end_s[task] for task in step_ends if until_s / 4 <= run.end_s[task] <= until_s * (1 + 1e-12)]
        if len(moments) > 1:
            steps_s[number] = max((moments[-1] - moments[0]) / (len(moments) - 1), jobs[number].step_s)
    return steps_s
