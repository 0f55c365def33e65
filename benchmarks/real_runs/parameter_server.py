"""A small parameter server over TCP: one connection per worker and shard, layers in order, one at a time.

A worker asks (``P``), receives the shard's pieces of all layers from the first to the last, computes, and sends its
gradients from the last layer to the first. An asynchronous shard applies them when all pieces of the worker are there;
a synchronous one when those of all workers are. Only then is the worker's next request answered. ``E`` ends it.
"""

import queue
import socket
import threading
import time
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

PORT = 5900
RATE = 1e-3
Floats = NDArray[np.float32]


def pieces(size: int, shards: int) -> list[slice]:
    """Return the even parts of ``size`` elements, one per shard."""
    edges = [size * shard // shards for shard in range(shards + 1)]
    return [slice(low, high) for low, high in pairwise(edges)]


class Shard:
    """One shard: serves ``workers`` workers until all of them have ended."""

    def __init__(self, sizes: Sequence[int], shard: int, shards: int, workers: int, synchronous: bool) -> None:
        own = [pieces(size, shards)[shard] for size in sizes]
        self.layers = [np.zeros(part.stop - part.start, np.float32) for part in own]
        self.workers, self.synchronous = workers, synchronous
        self.turn = threading.Condition()
        self.version = 0
        self.arrived: list[list[Floats]] = []
        self.update_s: list[float] = []

    def serve(self, listener: socket.socket) -> None:
        """Accept all workers and serve them."""
        threads = []
        for _ in range(self.workers):
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threads.append(threading.Thread(target=self._worker, args=(connection,)))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def _worker(self, connection: socket.socket) -> None:
        gradients = [np.zeros_like(layer) for layer in self.layers]
        step = 0
        with connection:
            while connection.recv(1) == b"P":
                if self.synchronous:
                    with self.turn:
                        self.turn.wait_for(lambda due=step: self.version >= due)
                for layer in self.layers:
                    connection.sendall(layer.data)
                for gradient in reversed(gradients):
                    receive(connection, gradient)
                self._apply(gradients)
                step += 1

    def _apply(self, gradients: list[Floats]) -> None:
        with self.turn:
            self.arrived.append(gradients)
            if self.synchronous and len(self.arrived) < self.workers:
                return
            start_s = time.perf_counter()
            for number, layer in enumerate(self.layers):
                for sent in self.arrived:
                    layer -= RATE / len(self.arrived) * sent[number]
            self.update_s.append(time.perf_counter() - start_s)
            self.arrived.clear()
            self.version += 1
            self.turn.notify_all()


class Client:
    """A worker's side: receives into its parameters and sends its gradients, a thread per direction and shard."""

    def __init__(self, addresses: Sequence[str], flat: Sequence[Floats], gradient: Sequence[Floats]) -> None:
        self.flat, self.gradient = flat, gradient
        count = len(addresses)
        self.parts = [pieces(len(layer), count) for layer in flat]
        self.here = [threading.Semaphore(0) for _ in flat]
        self.connections = [_connect(address) for address in addresses]
        self.outgoing: list[queue.SimpleQueue[int | None]] = [queue.SimpleQueue() for _ in addresses]
        self.asked = [threading.Semaphore(0) for _ in addresses]
        self.open = True
        self.threads = [threading.Thread(target=self._receive, args=(shard,)) for shard in range(count)]
        self.threads += [threading.Thread(target=self._send, args=(shard,)) for shard in range(count)]
        for thread in self.threads:
            thread.start()

    def fetch(self) -> None:
        """Ask for all parameters; the gradients of the step before must have been handed to ``send``."""
        for shard in range(len(self.connections)):
            self.outgoing[shard].put(-1)
            self.asked[shard].release()

    def wait(self, layer: int) -> None:
        """Wait until all pieces of a layer are there."""
        for _ in self.connections:
            self.here[layer].acquire()

    def send(self, layer: int) -> None:
        """Send a layer's gradient, behind those handed over before."""
        for line in self.outgoing:
            line.put(layer)

    def close(self) -> None:
        """End the connections."""
        self.open = False
        for shard in range(len(self.connections)):
            self.outgoing[shard].put(None)
            self.asked[shard].release()
        for thread in self.threads:
            thread.join()
        for connection in self.connections:
            connection.close()

    def _receive(self, shard: int) -> None:
        while True:
            self.asked[shard].acquire()
            if not self.open:
                return
            for number, layer in enumerate(self.flat):
                receive(self.connections[shard], layer[self.parts[number][shard]])
                self.here[number].release()

    def _send(self, shard: int) -> None:
        while (layer := self.outgoing[shard].get()) is not None:
            if layer < 0:
                self.connections[shard].sendall(b"P")
            else:
                self.connections[shard].sendall(self.gradient[layer][self.parts[layer][shard]].data)
        self.connections[shard].sendall(b"E")


def receive(connection: socket.socket, into: Floats) -> None:
    """Fill an array from a connection.

    Raises:
        ConnectionError: the other side has gone.
    """
    view = memoryview(into).cast("B")
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError("the other side of a parameter server's connection has gone")
        view = view[count:]


def listen() -> socket.socket:
    """Return the listening socket of a shard."""
    return socket.create_server(("", PORT), backlog=16)


def _connect(address: str) -> socket.socket:
    for _ in range(600):
        try:
            connection = socket.create_connection((address, PORT))
        except OSError:
            time.sleep(0.05)
            continue
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
    raise ConnectionError(f"no parameter server answers at {address}")
