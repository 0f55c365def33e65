"""Compilation of several steps of a training mode into a task graph.

Every worker has one compute stream. With servers: a layer is fetched, computed forward and backward, sent and applied;
the next step's fetch waits for all workers (synchronous) or for the worker's own gradient (asynchronous), per step or
per layer. All-reduce: buckets follow each other, as a ring of transfers between neighbours on a ring network, otherwise
as one task for all workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.costs.slowest import NATURAL_JITTER
from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes.analytic import check_slow, draws
from forerun.simulator.modes.events.links import (
    ALL_REDUCE,
    BACKWARD,
    BARRIER,
    DOWNLOAD,
    FORWARD,
    HOST,
    KINDS,
    UPDATE,
    UPLOAD,
    ModeLinks,
)
from forerun.simulator.modes.mode import TrainingMode
from forerun.simulator.modes.network import ModeNetwork
from forerun.simulator.modes.profile import GradientProfile

RING_WORKERS = 16
"""Rings up to this size are simulated round by round: the tasks of a step grow with the square of the size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeGraph:
    """A graph, and the tasks that begin (``first``) and end (``last``) every step of every worker (steps x workers).

    ``compute_s``: time of the passes (steps x workers). ``counted``: whether a worker's gradient enters the step.
    """

    graph: TaskGraph
    first: list[list[int]]
    last: list[list[int]]
    compute_s: list[list[float]]
    counted: list[list[bool]]


def build_mode(
    profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, noise: Disturbance, steps: int
) -> ModeGraph:
    """Return the graph of ``steps`` steps of all workers.

    Raises:
        RequestError: a slow worker does not exist, or shards outnumber the layers or parameters to place on them.
    """
    check_slow(noise.slow, mode.workers)
    return _Builder(profile, mode, network, noise, steps).build()


def drawn_factors(profile: GradientProfile, mode: TrainingMode, noise: Disturbance, steps: int) -> list[list[float]]:
    """Return the factor on the passes of every step of every worker, from the seeded generator.

    Asynchronous workers are never exactly equal: see ``NATURAL_JITTER``.
    """
    if not (mode.synchronous or profile.step_factors or noise.jitter) and mode.workers > 1:
        noise = replace(noise, jitter=NATURAL_JITTER)
    choices = draws(profile, noise)
    slow = [noise.slow.get(worker, 1.0) for worker in range(mode.workers)]
    if len(choices) == 1 or mode.workers == 1:  # one worker waits for no other: only its mean matters
        return [slow] * steps
    picked = np.random.default_rng(noise.seed).choice(choices, size=(steps, mode.workers))
    return (picked * np.asarray(slow)).tolist()  # type: ignore[no-any-return]


class _Builder:
    def __init__(
        self, profile: GradientProfile, mode: TrainingMode, network: ModeNetwork, noise: Disturbance, steps: int
    ) -> None:
        self.profile, self.mode, self.network, self.steps = profile, mode, network, steps
        self.graph = TaskGraph(KINDS)
        self.links = ModeLinks(self.graph, mode, network, mode.shard_bytes(profile))
        self.compute = [self.graph.add_stream(f"worker {w}", device=w) for w in range(mode.workers)]
        self.factors = drawn_factors(profile, mode, noise, steps)
        self.layers = range(len(profile.layers))
        self.buckets = mode.buckets(profile) if mode.exchange == "all-reduce" and mode.workers > 1 else ()
        self.closing = {bucket[-1] for bucket in self.buckets}
        self.blocked_s = network.blocked_s(mode.workers) if self.buckets and mode.overlap else 0.0
        servers = range(self.links.servers)
        # An update unit is shared by all waiting gradients, so that none is preferred by its number.
        self.unit = [self.graph.add_link(f"update {server}", 1.0) for server in servers]
        self.ring = [self.graph.add_stream(f"ring {w}", device=w) for w in range(mode.workers)]

    def build(self) -> ModeGraph:
        count = self.mode.workers
        made = ModeGraph(graph=self.graph, first=[], last=[], compute_s=[], counted=[])
        fetchable: list[list[Sequence[int]]] = [[() for _ in self.layers] for _ in range(count)]
        for step in range(self.steps):
            counted = self._counted(step)
            made.counted.append(counted)
            made.compute_s.append([self.profile.compute_s * factor for factor in self.factors[step]])
            starts = [self._starts(fetchable[worker]) for worker in range(count)]
            begun = [self.graph.add(BARRIER, 0.0, after=starts[w], tag=(w, step)) for w in range(count)]
            made.first.append(begun)
            passes = [self._passes(step, w, begun[w], fetchable[w], counted[w]) for w in range(count)]
            if self.mode.exchange == "all-reduce":
                updated = self._all_reduce(step, passes)
            else:
                updated = self._servers(step, passes, counted)
            for worker in range(count):
                fetchable[worker] = updated[worker]
            made.last.append([self._join(updated[w], (w, step)) for w in range(count)])
        return made

    def _counted(self, step: int) -> list[bool]:
        """Drop the gradients of the slowest workers if there are backup workers; ties are broken by number."""
        order = sorted(range(self.mode.workers), key=lambda worker: (self.factors[step][worker], worker))
        kept = set(order[: self.mode.workers - self.mode.backup_workers])
        return [worker in kept for worker in range(self.mode.workers)]

    def _starts(self, fetchable: Sequence[Sequence[int]]) -> list[int]:
        """Return the tasks that the first fetch of a step waits for."""
        rows = fetchable[:1] if self.mode.barrier == "layer" else fetchable
        return sorted({task for row in rows for task in row})

    def _join(self, tasks: Sequence[Sequence[int]], tag: tuple[object, ...]) -> int:
        flat = sorted({task for row in tasks for task in row})
        return flat[0] if len(flat) == 1 else self.graph.add(BARRIER, 0.0, after=flat, tag=tag)

    def _passes(
        self, step: int, worker: int, begun: int, fetchable: Sequence[Sequence[int]], counted: bool
    ) -> list[int]:
        """Add fetches and passes of a step; return for each layer the task that completes its gradient."""
        graph, factor, stream = self.graph, self.factors[step][worker], self.compute[worker]
        label = f"step {step}"
        fetched: list[list[int]] = [[begun] for _ in self.layers]
        if self.mode.exchange != "all-reduce":
            by_layer = self.mode.barrier == "layer"
            for layer in self.layers:
                after = sorted(set(fetchable[layer])) if by_layer and fetchable[layer] else [begun]
                fetched[layer] = [
                    self.links.send(DOWNLOAD, worker, server, layer, step, after)
                    for server in range(self.links.servers)
                ]
        if not counted:
            return [begun] * len(self.layers)
        if not self.mode.overlap:
            everything = graph.add(BARRIER, 0.0, after=[task for row in fetched for task in row], tag=(worker, step))
            fetched = [[everything] for _ in self.layers]
        if self.profile.host_s:
            graph.add(HOST, self.profile.host_s * factor, stream, fetched[0], tag=(label,))
        for layer in self.layers:
            forward_s = self.profile.layers[layer].forward_s * factor
            graph.add(FORWARD, forward_s, stream, fetched[layer], tag=(layer, label))
        done = [0] * len(self.layers)
        for layer in reversed(self.layers):
            backward_s = self.profile.layers[layer].backward_s * factor
            done[layer] = graph.add(BACKWARD, backward_s, stream, tag=(layer, label))
            if self.blocked_s and layer in self.closing:
                done[layer] = graph.add(HOST, self.blocked_s, stream, tag=(label,))
        return done if self.mode.overlap else [done[0]] * len(self.layers)

    def _servers(self, step: int, passes: list[list[int]], counted: Sequence[bool]) -> list[list[Sequence[int]]]:
        """Add uploads and updates; return for each worker and layer the tasks that its next fetch waits for."""
        count, servers = range(self.mode.workers), range(self.links.servers)
        sent: list[list[list[int]]] = [[[] for _ in self.layers] for _ in count]
        for worker in count:
            if counted[worker]:
                for layer in reversed(self.layers):
                    after = [passes[worker][layer]]
                    sent[worker][layer] = [
                        self.links.send(UPLOAD, worker, server, layer, step, after) for server in servers
                    ]
        if self.mode.synchronous:
            together = [[task for worker in count for task in sent[worker][layer]] for layer in self.layers]
            done = self._apply(together, f"step {step}")
            return [done for _ in count]
        return [self._apply(sent[worker], f"worker {worker} step {step}") for worker in count]

    def _apply(self, sent: list[list[int]], label: str) -> list[Sequence[int]]:
        """Add the updates of all layers by the gradients in ``sent``; return the tasks that complete each layer."""
        graph, total = self.graph, self.profile.total_bytes or 1.0
        if not self.mode.overlap or self.mode.barrier == "step":
            all_sent = graph.add(BARRIER, 0.0, after=[task for row in sent for task in row], tag=(label,))
            sent = [[all_sent] for _ in self.layers]
        # Servers simulated as one update their pieces at the same time.
        update_s = self.profile.update_s / (self.mode.shards if len(self.unit) == 1 else 1)
        done: list[Sequence[int]] = []
        for layer, row in enumerate(self.links.pieces):
            if not update_s or not sum(row):
                done.append([self._join([sent[layer]], (layer, label))] if sent[layer] else [])
                continue
            tasks = [
                graph.add_transfer(
                    UPDATE, update_s * size / total, (self.unit[server],), -1, sent[layer], tag=(layer, label)
                )
                for server, size in enumerate(row)
                if size
            ]
            done.append(tasks)
        if self.mode.barrier == "step":
            everything = graph.add(BARRIER, 0.0, after=[task for row in done for task in row], tag=(label,))
            done = [[everything] for _ in self.layers]
        return done

    def _all_reduce(self, step: int, passes: list[list[int]]) -> list[list[Sequence[int]]]:
        """Add the all-reduces of all buckets and the updates; return the tasks to wait for by worker and layer."""
        count = range(self.mode.workers)
        ends: list[list[int]] = [[passes[worker][0]] for worker in count]
        for number, bucket in enumerate(self.buckets):
            size = sum(self.profile.layers[layer].reduced_bytes(len(count)) for layer in bucket)
            done = self._bucket(size, [passes[worker][bucket[-1]] for worker in count], (number, f"step {step}"))
            for worker in count:
                ends[worker].append(done[worker])
        update_s, tag = self.profile.update_s + self.network.rendezvous_s(len(count)), (f"step {step}",)
        updates: list[list[Sequence[int]]] = []
        for worker in count:
            update = self.graph.add(UPDATE, update_s, self.compute[worker], ends[worker], tag=tag)
            updates.append([[update] for _ in self.layers])
        return updates

    def _bucket(self, size: float, ready: Sequence[int], tag: tuple[int, str]) -> list[int]:
        """Add one all-reduce; return the tasks that complete the sum on each worker."""
        graph, count = self.graph, self.mode.workers
        if not self.network.ring or count > RING_WORKERS:
            time_s = self.network.all_reduce_s(size, count)
            task = graph.add_collective(ALL_REDUCE, time_s, self.ring, ready, tag=tag)
            return [task] * count
        links, latency_s = self.links, self.network.latency_s
        arrived = list(ready)
        for _ in range(2 * (count - 1)):
            sent = [
                graph.add_transfer(
                    ALL_REDUCE,
                    size / count,
                    (links.out[worker], links.into[(worker + 1) % count]),
                    self.ring[worker],
                    # Its own gradient and the message of its left neighbour from the preceding round.
                    sorted({ready[worker], arrived[worker]}),
                    latency_s=latency_s,
                    tag=tag,
                )
                for worker in range(count)
            ]
            arrived = [sent[(worker - 1) % count] for worker in range(count)]
        return arrived
