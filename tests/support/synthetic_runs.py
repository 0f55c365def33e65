"""Runs of data-parallel and pipelined training made up to the microsecond, as traces with clocks that are wrong.

What happened is known, so that what a replay finds can be compared with it. The times are computed here, by recursions
of their own, and written as PyTorch profiler files.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass(kw_only=True)
class Made:
    """Traces on disk and the truth: ``offset_s``, ``drift`` of every rank's clock (true = local + offset + drift *
    (local - middle)), and true seconds of every step."""

    paths: list[Path]
    offset_s: np.ndarray
    drift: np.ndarray
    middle_s: float
    step_s: np.ndarray


@dataclass(kw_only=True)
class Rank:
    """Events of one rank in true seconds: (category, name, thread, start, end, arguments)."""

    events: list = field(default_factory=list)

    def add(self, category, name, thread, start, end, **arguments):
        self.events.append((category, name, thread, start, end, arguments))


def data_parallel(
    folder,
    *,
    ranks=4,
    steps=4,
    buckets=6,
    forward_s=4e-3,
    backward_s=1e-3,
    reduce_s=1.5e-3,
    bucket_elements=250_000,
    jitter=0.02,
    noise_s=5e-6,
    offset_s=0.0,
    drift=0.0,
    hosts=None,
    slow=None,
    paces=None,
    pause_s=0.0,
    seed=0,
):
    """Write a data-parallel run. ``paces``: how many times as long each rank takes in each step [steps][ranks].
    ``offset_s``, ``drift``: largest of either sign of any host (the first has none); ``hosts``: how many (None: one per
    rank); ``slow``: (rank, first slow step, factor); ``pause_s``: between steps."""
    generator = np.random.default_rng(seed)
    made = [Rank() for _ in range(ranks)]
    now, link = np.zeros(ranks), np.zeros(ranks)
    ends = []
    for step in range(steps):
        factor = np.ones(ranks) if paces is None else np.array(paces[step], dtype=float)
        if slow is not None and step >= slow[1]:
            factor[slow[0]] = slow[2]
        begin = now.copy()
        now = _compute(made, "aten::linear", now, forward_s * factor, generator, jitter)
        asked = []
        for bucket in range(buckets):
            name = f"autograd::engine::evaluate_function: Backward{bucket}"
            now = _compute(made, name, now, backward_s * factor, generator, jitter)
            for rank in range(ranks):
                made[rank].add("cpu_op", "c10d::allreduce_", 1, now[rank], now[rank] + 10e-6)
            now = now + 10e-6
            asked.append(now.copy())
        for bucket in range(buckets):
            start = np.maximum(asked[bucket] + 5e-6, link)
            link = start.max() + reduce_s + generator.exponential(noise_s, ranks)
            for rank in range(ranks):
                made[rank].add(
                    "user_annotation",
                    "gloo:all_reduce",
                    2,
                    start[rank],
                    link[rank],
                    **{"Input Dims": [[bucket_elements]], "Input type": ["float"]},
                )
        now = np.maximum(now, link) + 20e-6
        now = _compute(made, "aten::add_", now, np.full(ranks, 0.5e-3), generator, jitter)
        for rank in range(ranks):
            made[rank].add("user_annotation", f"ProfilerStep#{step + 3}", 1, begin[rank], now[rank] + 2e-6)
        ends.append(float(now.max()))
        now = now + 10e-6 + pause_s
    return _write(folder, made, ends, generator, offset_s, drift, hosts)


def pipelined(folder, *, stages=3, microbatches=6, steps=3, forward_s=2e-3, ring_step_s=0.3e-3, offset_s=0.0, seed=0):
    """Write a pipelined run (all forward, then all backward passes): sends return at once, receives wait."""
    generator = np.random.default_rng(seed)
    made = [Rank() for _ in range(stages)]
    now, ends = np.zeros(stages), []
    for step in range(steps):
        begin = now.copy()
        for word, order, took in (
            ("aten::linear", range(stages), forward_s),
            ("autograd::engine::evaluate_function: MmBackward0", range(stages - 1, -1, -1), 2 * forward_s),
        ):
            arrive = np.zeros((microbatches, stages))
            for number, stage in enumerate(order):
                before = list(order)[number - 1] if number else None
                after = list(order)[number + 1] if number + 1 < stages else None
                for microbatch in range(microbatches):
                    if before is not None:
                        _receive(made[stage], now, stage, before, arrive[microbatch, before])
                    end = now[stage] + took * generator.uniform(0.95, 1.05)
                    made[stage].add("cpu_op", word, 1, now[stage], end)
                    now[stage] = end
                    if after is not None:
                        arrive[microbatch, stage] = _send(made[stage], now, stage, after, ring_step_s)
        for stage in range(stages):
            made[stage].add("cpu_op", "aten::add_", 1, now[stage], now[stage] + 1e-3)
            now[stage] += 1e-3
            made[stage].add("user_annotation", f"ProfilerStep#{step}", 1, begin[stage], now[stage] + 1e-6)
        ends.append(float(now.max()))
        now += 5e-6
    return _write(folder, made, ends, generator, offset_s, 0.0, None)


def _send(rank, now, stage, after, ring_step_s):
    """Ask for a send; return when its data arrive."""
    inputs = ["", "", str(after), "0"]
    rank.add("cpu_op", "c10d::send", 1, now[stage], now[stage] + 5e-6, **{"Concrete Inputs": inputs})
    begin = now[stage] + 2e-6
    shape = {"Input Dims": [[1000]], "Input type": ["float"]}
    rank.add("user_annotation", "gloo:send", 3, begin, begin + 30e-6, **shape)
    now[stage] += 5e-6
    return begin + ring_step_s


def _receive(rank, now, stage, before, arrives):
    """Ask for a receive and wait for it."""
    inputs = ["", "", str(before), "0"]
    rank.add("cpu_op", "c10d::recv_", 1, now[stage], now[stage] + 5e-6, **{"Concrete Inputs": inputs})
    begin = now[stage] + 2e-6
    end = max(begin + 20e-6, arrives)
    rank.add("user_annotation", "gloo:recv", 2, begin, end, **{"Input Dims": [[1000]], "Input type": ["float"]})
    now[stage] = end + 8e-6


def _compute(made, name, now, took, generator, jitter):
    """Add an operator to every rank; return when each ends."""
    took = took * (1 + jitter * generator.uniform(-1, 1, len(made)))
    for rank, one in enumerate(made):
        one.add("cpu_op", name, 1, now[rank], now[rank] + took[rank], **{"Input Dims": [[64, 64]]})
    return now + took


def _write(folder, made, ends, generator, offset_s, drift, hosts):
    ranks = len(made)
    hosts = ranks if hosts is None else hosts
    host = np.arange(ranks) * hosts // ranks
    offsets = generator.uniform(-1, 1, hosts) * offset_s
    drifts = generator.uniform(-1, 1, hosts) * drift
    offsets[0] = drifts[0] = 0.0
    middle_s, base_us = ends[-1] / 2, 5_000_000
    paths = []
    for rank, one in enumerate(made):

        def local(true_s, rank=rank):
            late_s, rate = offsets[host[rank]], drifts[host[rank]]
            return round(((true_s - late_s + rate * middle_s) / (1 + rate)) * 1e6, 3) + base_us

        events = [
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 100,
                "tid": thread,
                "ts": local(start),
                "dur": round(local(end) - local(start), 3),
                "args": arguments,
            }
            for category, name, thread, start, end, arguments in one.events
        ]
        document = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": ranks},
            "host_name": f"host{host[rank]}",
            "baseTimeNanoseconds": 1_700_000_000_000_000_000,
            "traceEvents": events,
        }
        path = Path(folder) / f"rank{rank}.json"
        path.write_text(json.dumps(document))
        paths.append(path)
    return Made(
        paths=paths, offset_s=offsets[host], drift=drifts[host], middle_s=middle_s, step_s=np.diff(ends, prepend=0.0)
    )
