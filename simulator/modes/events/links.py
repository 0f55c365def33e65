"""NICs as links of a task graph, and the parts of a tensor under a transfer policy."""

from collections.abc import Sequence

from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.modes.mode import TrainingMode
from forerun.simulator.modes.network import ModeNetwork

KINDS = ("host", "forward", "backward", "download", "upload", "update", "all-reduce", "barrier")
HOST, FORWARD, BACKWARD, DOWNLOAD, UPLOAD, UPDATE, ALL_REDUCE, BARRIER = range(len(KINDS))

TURNS = 4
"""Parts in which multiplexed tensors alternate; more only cost events."""


class ModeLinks:
    """The NICs of workers and servers and the connections between them.

    Dedicated servers with equal pieces of every layer work in lockstep, so they are simulated as one server with all
    their NICs.
    """

    def __init__(
        self, graph: TaskGraph, mode: TrainingMode, network: ModeNetwork, pieces: Sequence[Sequence[float]]
    ) -> None:
        self.graph, self.mode = graph, mode
        self.latency_s = network.latency_s
        workers = range(mode.workers)
        self.out = [graph.add_link(f"worker {worker} out", network.worker_bytes_per_s) for worker in workers]
        self.into = [graph.add_link(f"worker {worker} in", network.worker_bytes_per_s) for worker in workers]
        pooled = mode.placement == "even" and not mode.colocated
        self.pieces = [[sum(row)] if pooled else list(row) for row in pieces]
        self.servers = 0 if mode.exchange == "all-reduce" else len(self.pieces[0])
        if mode.colocated:
            self.server_out, self.server_in = self.out, self.into
        else:
            rate = network.server_bytes_per_s * (mode.shards if pooled else 1)
            self.server_out = [graph.add_link(f"server {server} out", rate) for server in range(self.servers)]
            self.server_in = [graph.add_link(f"server {server} in", rate) for server in range(self.servers)]
        self.queues: dict[tuple[int, int, int], int] = {}

    def send(self, kind: int, worker: int, server: int, layer: int, step: int, after: Sequence[int]) -> int:
        """Add the transfer of a layer's piece between a worker and a server; return the task that completes it."""
        size = self.pieces[layer][server]
        tag = (layer, f"worker {worker}", f"step {step}")
        if not size or (self.mode.colocated and worker == server):
            return self.graph.add(kind, 0.0, after=after, tag=tag)
        if kind == DOWNLOAD:
            route = (self.server_out[server], self.into[worker])
        else:
            route = (self.out[worker], self.server_in[server])
        if self.latency_s:
            # The connection is free while a first byte is under way: messages are sent one after the other.
            after = [self.graph.add(kind, self.latency_s, after=after, tag=tag)]
        queue = self._queue(kind, worker, server)
        last = -1
        for part, priority in self._parts(size, layer):
            last = self.graph.add_transfer(kind, part, route, queue, after, tag=tag, priority=priority)
        return last

    def _parts(self, size: float, layer: int) -> list[tuple[float, int]]:
        """Cut a tensor into (bytes, priority), in the order of sending."""
        # A connection sends one part at a time, and connections share a NIC evenly regardless of their remaining bytes,
        # as under TCP. Multiplexed tensors alternate with equal parts; windowed tensors all send their first bytes
        # before the rest.
        policy, window = self.mode.policy, self.mode.window_bytes
        if policy == "multiplexed":
            return [(size / TURNS, turn) for turn in range(TURNS)]
        if policy == "windowed" and 0 < window < size:
            return [(window, 0), (size - window, 1)]
        return [(size, layer if policy == "priority" else 0)]

    def _queue(self, kind: int, worker: int, server: int) -> int:
        key = (kind, worker, server)
        if key not in self.queues:
            name = f"{KINDS[kind]} {worker}-{server}"
            self.queues[key] = self.graph.add_stream(name, device=worker, ordered=False)
        return self.queues[key]
