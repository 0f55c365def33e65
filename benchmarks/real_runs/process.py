"""One process of a real run: does what a schedule tells it, one variant after the other, and writes what it measured.

Started by ``data_parallel.py`` on a host of its own: ``python process.py RANK SCHEDULE.json OUT.json``. Ranks below
``workers`` train, the others are parameter servers. Everybody meets before each variant.
"""

import json
import os
import statistics
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from paced import PacedModel
from parameter_server import RATE, Client, Shard, listen

WARM = 2
"""Steps of every variant that are not counted."""
PING_SIZES = (1024, 65_536, 262_144, 1_048_576)


class Process:
    """State of a process. ``schedule``: plans by model, addresses of all ranks, and the variants."""

    def __init__(self, rank: int, schedule: dict[str, Any]) -> None:
        self.rank, self.schedule = rank, schedule
        self.workers: int = schedule["workers"]
        addresses = schedule["addresses"]
        self.store = dist.TCPStore(
            addresses[0], 5800, len(addresses), rank == 0, timeout=timedelta(seconds=300), wait_for_workers=False
        )
        self.models = {name: PacedModel(name) for name in schedule["plans"]} if rank < self.workers else {}
        for name, plan in schedule["plans"].items():
            if rank < self.workers:
                self.models[name].plan = [(a, b) for a, b in plan]
        self.groups: dict[int, Any] = {}
        if rank < self.workers:
            dist.init_process_group(
                "gloo", store=dist.PrefixStore("gloo", self.store), rank=rank, world_size=self.workers
            )
            for count in range(2, self.workers + 1):
                self.groups[count] = dist.new_group(list(range(count)))
        self.listener = listen() if rank >= self.workers else None

    def run(self) -> list[dict[str, Any]]:
        """Do all variants; return what was measured in each."""
        found = []
        for number, variant in enumerate(self.schedule["variants"]):
            self._meet(number)
            doing = {"all-reduce": self._all_reduce, "links": self._links}.get(variant["mode"], self._server)
            measured = doing(variant)
            if measured is not None:
                found.append({"variant": number, "rank": self.rank, **measured})
        self._meet(len(self.schedule["variants"]))
        return found

    def _meet(self, number: int) -> None:
        everybody = len(self.schedule["addresses"])
        if self.store.add(f"meet {number}", 1) == everybody:
            self.store.set(f"go {number}", "go")
        self.store.wait([f"go {number}"])

    def _all_reduce(self, variant: dict[str, Any]) -> dict[str, Any] | None:
        """Train with one all-reduce per stage, as soon as its gradient is there."""
        count = variant["workers"]
        if self.rank >= count:
            return None
        model = self.models[variant["model"]]
        works: list[Any] = []

        def ready(stage: int) -> None:
            if count > 1:
                works.append(dist.all_reduce(model.gradient[stage], group=self.groups[count], async_op=True))

        def step() -> tuple[list[float], list[float]]:
            passes = model.step(ready=ready, slow=self._slow(variant))
            for work in works:
                work.wait()
            works.clear()
            with torch.no_grad():
                for flat, gradient in zip(model.flat, model.gradient, strict=True):
                    flat.sub_(gradient, alpha=RATE / count)
            return passes

        return _timed(step, variant["steps"])

    def _server(self, variant: dict[str, Any]) -> dict[str, Any] | None:
        """Train with parameter servers, or be one."""
        shards, count = variant["shards"], variant["workers"]
        synchronous = variant["mode"] == "sync-ps"
        if self.rank >= self.workers:
            shard = self.rank - self.workers
            if shard >= shards:
                return None
            assert self.listener is not None
            served = Shard(self.schedule["elements"][variant["model"]], shard, shards, count, synchronous)
            served.serve(self.listener)
            return {"update_s": statistics.median(served.update_s)}
        if self.rank >= count:
            return None
        model = self.models[variant["model"]]
        addresses = self.schedule["addresses"][self.workers : self.workers + shards]
        client = Client(addresses, [f.numpy() for f in model.flat], [g.numpy() for g in model.gradient])

        def step() -> tuple[list[float], list[float]]:
            client.fetch()
            return model.step(before=client.wait, ready=client.send, slow=self._slow(variant))

        try:
            return _timed(step, variant["steps"], 0.0 if synchronous else variant["seconds"])
        finally:
            client.close()

    def _links(self, variant: dict[str, Any]) -> dict[str, Any] | None:
        """Measure, between the first two workers, messages of some sizes there and a byte back, and all-reduces."""
        if self.rank > 1:
            return None
        sent, reduced = [], []
        for size in PING_SIZES:
            data, note = torch.zeros(size, dtype=torch.uint8), torch.zeros(1, dtype=torch.uint8)
            times: list[list[float]] = [[], []]
            for _ in range(variant["steps"]):
                start_s = time.perf_counter()
                if self.rank == 0:
                    dist.send(data, 1)
                    dist.recv(note, 1)
                else:
                    dist.recv(data, 0)
                    dist.send(note, 0)
                times[0].append(time.perf_counter() - start_s)
                start_s = time.perf_counter()
                dist.all_reduce(data, group=self.groups[2])
                times[1].append(time.perf_counter() - start_s)
            sent.append((size, statistics.median(times[0])))
            reduced.append((size, statistics.median(times[1])))
        return {"sent": sent, "reduced": reduced}

    def _slow(self, variant: dict[str, Any]) -> float:
        return float(variant["slow"]) if self.rank == variant["workers"] - 1 else 1.0


def _timed(step: Any, steps: int, seconds: float = 0.0) -> dict[str, Any]:
    """Return step times and median passes; asynchronous workers go on for ``seconds``, whatever the others do."""
    passes, ends = [], []
    stop_s = time.perf_counter() + seconds
    while len(ends) < steps + WARM + 1 or time.perf_counter() < stop_s:
        passes.append(step())
        ends.append(time.perf_counter())
    steps_s = [after - before for before, after in zip(ends[WARM:-1], ends[WARM + 1 :], strict=True)]
    stages = range(len(passes[0][0]))
    return {
        "steps_s": steps_s,
        "forward_s": [statistics.median(one[0][stage] for one in passes[WARM:]) for stage in stages],
        "backward_s": [statistics.median(one[1][stage] for one in passes[WARM:]) for stage in stages],
    }


def main() -> None:
    """Run the schedule and write what was measured."""
    rank, schedule, out = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    os.nice(-5)
    process = Process(rank, json.loads(schedule.read_text(encoding="utf-8")))
    out.write_text(json.dumps(process.run()), encoding="utf-8")
    os._exit(0)  # gloo's threads outlive their store, which rank 0 takes with it


if __name__ == "__main__":
    main()
