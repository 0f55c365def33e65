"""Division of a cluster's nodes among data-parallel jobs, with the effect of shared links.

The document of ``forerun scale``::

    cluster: dgx1-v100
    nodes: 8
    shared: 25GB/s      # common rate of all traffic between nodes, per direction (default: not shared)
    goal: total         # largest weighted sum of speed-ups (default); least: largest smallest speed-up
    jobs:
      - {model: resnet50, batch: 32, weight: 2}
      - {name: large, model: vgg16, batch: 32, nodes: 1..4}
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from forerun.search.scale.profile import Rate
from forerun.search.scale.request import ScaleRequest, Scaling, scale
from forerun.simulator.modes.prediction import ModePrediction
from forerun.simulator.modes.shared_link import SharedJob, SharedMessage, steps_together
from forerun.spaces.clusters import Cluster, resolve_cluster
from forerun.spaces.documents import Document, read_document, validate
from forerun.spaces.errors import RequestError

MOST_NODES, MOST_JOBS = 1024, 64
Count = Annotated[int, Field(ge=1, le=MOST_NODES)]


class JobDocument(BaseModel):
    """One job: fields of ``forerun scale``; ``weight`` of its speed-up; ``nodes``: allowed numbers of nodes."""

    model_config = ConfigDict(extra="forbid")

    name: str = ""
    model: str
    batch: Annotated[int, Field(ge=1)] | None = None
    seq_len: Annotated[int, Field(ge=1)] | None = None
    precision: str | None = None
    framework: str | None = None
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    nodes: str | int | None = None


class JobsDocument(BaseModel):
    """All jobs of a cluster."""

    model_config = ConfigDict(extra="forbid")

    cluster: str
    nodes: Count
    shared: Rate | None = None
    goal: Literal["total", "least"] = "total"
    jobs: Annotated[list[JobDocument], Field(min_length=1, max_length=MOST_JOBS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """A job with its ``nodes``.

    ``speed_up``: over one node; ``alone_samples_per_s``: without shared links; ``samples_per_s``: together with the
    other jobs.
    """

    name: str
    nodes: int
    workers: int
    speed_up: float
    alone_samples_per_s: float
    samples_per_s: float

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain data, with the cost of sharing."""
        names = ("name", "nodes", "workers", "speed_up", "alone_samples_per_s", "samples_per_s")
        return {name: getattr(self, name) for name in names} | {
            "slower_by": 1.0 - self.samples_per_s / self.alone_samples_per_s
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """The answer for all jobs of a document."""

    cluster: str
    nodes: int
    goal: str
    placed: tuple[PlacedJob, ...]
    defaults: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "schema": 1,
            "cluster": self.cluster,
            "nodes": self.nodes,
            "goal": self.goal,
            "jobs": [job.to_json() for job in self.placed],
            "defaults": list(self.defaults),
        }


def jobs_document(path: Path) -> Document | None:
    """Return the document of a file of jobs; None for a gradient profile.

    Raises:
        RequestError: the file cannot be read.
    """
    document = read_document(path)
    return document if isinstance(document.data, dict) and "jobs" in document.data else None


def plan_jobs(document: Document) -> Jobs:
    """Divide the nodes among the jobs of a document, and predict all jobs at once.

    Raises:
        RequestError: the document or a job is wrong, or there are fewer nodes than jobs.
    """
    asked = validate(document, JobsDocument)
    cluster = resolve_cluster(asked.cluster)
    if asked.nodes * cluster.devices_per_node > cluster.max_devices:
        most = cluster.max_devices // cluster.devices_per_node
        raise RequestError(f"{cluster.name} has at most {most} nodes, but got {asked.nodes}")
    choices = [_choices(document, asked, number) for number in range(len(asked.jobs))]
    curves = [_curve(asked, job, cluster, counts) for job, counts in zip(asked.jobs, choices, strict=True)]
    rates = [{nodes: _rate(curve, nodes) for nodes in counts} for curve, counts in zip(curves, choices, strict=True)]
    gains = [
        {nodes: job.weight * rate / _rate(curve, 1) for nodes, rate in counts.items()}
        for job, curve, counts in zip(asked.jobs, curves, rates, strict=True)
    ]
    dealt = shares(gains, asked.nodes, least=asked.goal == "least")
    if dealt is None:
        raise RequestError(f"{len(asked.jobs)} jobs do not find the nodes they need among {asked.nodes}; name more")
    steps = steps_together(
        [_shared(curve, nodes, cluster) for curve, nodes in zip(curves, dealt, strict=True)], asked.shared
    )
    placed = []
    for job, curve, nodes, gain, step_s in zip(asked.jobs, curves, dealt, gains, steps, strict=True):
        rate, workers = _rate(curve, nodes), nodes * cluster.devices_per_node
        placed.append(
            PlacedJob(
                name=job.name or job.model,
                nodes=nodes,
                workers=workers,
                speed_up=gain[nodes] / job.weight,
                alone_samples_per_s=rate,
                samples_per_s=min(workers * curve.profile.batch / step_s, rate),
            )
        )
    return Jobs(
        cluster=cluster.name,
        nodes=asked.nodes,
        goal=asked.goal,
        placed=tuple(placed),
        defaults=tuple(dict.fromkeys(word for curve in curves for word in curve.defaults)),
    )


def shares(gains: Sequence[dict[int, float]], nodes: int, *, least: bool) -> tuple[int, ...] | None:
    """Return the nodes of each job that maximise the sum of gains (``least``: the smallest gain), with the fewest nodes
    among equal ones; None with too few nodes. ``gains``: gain of every job by its number of nodes.
    """
    best: dict[int, tuple[float, tuple[int, ...]]] = {0: (float("inf") if least else 0.0, ())}
    for job_gains in gains:
        extended: dict[int, tuple[float, tuple[int, ...]]] = {}
        for used, (value, before) in best.items():
            for count, gain in job_gains.items():
                total = min(value, gain) if least else value + gain
                if used + count <= nodes and total > extended.get(used + count, (-1.0, ()))[0]:
                    extended[used + count] = (total, (*before, count))
        best = extended
    if not best:
        return None
    return max(best.items(), key=lambda entry: (entry[1][0], -entry[0]))[1][1]


def _choices(document: Document, asked: JobsDocument, number: int) -> list[int]:
    stated = asked.jobs[number].nodes
    if stated is None:
        return list(range(1, asked.nodes + 1))
    low, dots, high = str(stated).partition("..")
    try:
        first, last = int(low), int(high if dots else low)
    except ValueError:
        first, last = 1, 0
    counts = list(range(max(first, 1), min(last, asked.nodes) + 1))
    if not counts:
        where = document.where(("jobs", number, "nodes"))
        raise RequestError(f"{where}: nodes are a number or a range up to {asked.nodes}, but got {stated}")
    return counts


def _curve(asked: JobsDocument, job: JobDocument, cluster: Cluster, choices: Sequence[int]) -> Scaling:
    counts = sorted({1, *choices})
    return scale(
        ScaleRequest(
            model=job.model,
            cluster=asked.cluster,
            workers=",".join(str(count * cluster.devices_per_node) for count in counts),
            batch=job.batch,
            seq_len=job.seq_len,
            precision=job.precision,
            framework=job.framework,
            fidelity="analytic",
        )
    )


def _rate(curve: Scaling, nodes: int) -> float:
    return _point(curve, nodes).samples_per_s


def _point(curve: Scaling, nodes: int) -> ModePrediction:
    first = curve.curve.points[0].workers
    return next(point.chosen for point in curve.curve.points if point.workers == nodes * first)


def _shared(curve: Scaling, nodes: int, cluster: Cluster) -> SharedJob:
    """Return the computation and the traffic between nodes of a job."""
    profile, point = curve.profile, _point(curve, nodes)
    mode = replace(curve.mode, workers=nodes * cluster.devices_per_node)
    if nodes == 1 or mode.exchange != "all-reduce":
        return SharedJob(step_s=point.step_s, passes_s=point.step_s)
    behind = np.cumsum([layer.backward_s for layer in reversed(profile.layers)])[::-1]
    messages = []
    for bucket in mode.buckets(profile):
        size = sum(profile.layers[layer].reduced_bytes(mode.workers) for layer in bucket)
        ready_s = profile.forward_s + (float(behind[bucket[-1]]) if mode.overlap else profile.backward_s)
        # A ring over n nodes sends (n - 1) / n of all gradients twice out of each node.
        sent = 2.0 * (nodes - 1) * size
        alone_s = curve.network.all_reduce_s(size, mode.workers)
        messages.append(SharedMessage(ready_s=ready_s, alone_s=alone_s, sent_bytes=sent))
    passes_s = profile.forward_s + profile.backward_s
    return SharedJob(step_s=point.step_s, passes_s=min(passes_s, point.step_s), messages=tuple(messages))
