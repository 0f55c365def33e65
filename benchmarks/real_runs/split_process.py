"""One rank of the split runs: does what a schedule tells it, one variant after the other, and writes what it measured.

Started by ``layouts.py`` on a host of its own: ``python split_process.py RANK SCHEDULE.json OUT.json``.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from emulated import Device
from split_model import HIDDEN, LAYERS, LENGTH, VOCAB, Stage, device
from torch import Tensor

from forerun.search.measured.profiling.collectives import Between
from forerun.search.measured.profiling.messages import MeasuredCollective

WARM = 1
PAUSE_S = 5e-3
"""Between messages that are timed: in training there are operators between them, and the NIC's bucket fills again."""
SHORT_S = 0.2
"""Operators are run for about this long to be timed."""


class Pipeline:
    """One rank's part of a strategy: ranks are numbered tensor first, then data, then pipeline."""

    def __init__(self, rank: int, plan: dict[str, int], groups: Callable[[list[int]], Any]) -> None:
        self.tp, self.dp, self.pp, self.mbs = (plan[name] for name in ("tp", "dp", "pp", "mbs"))
        self.count = plan["batch"] // (self.dp * self.mbs)
        tp_at, dp_at, self.stage = rank % self.tp, rank // self.tp % self.dp, rank // (self.tp * self.dp)
        tp_group = dp_group = None
        for stage in range(self.pp):
            for replica in range(self.dp):
                members = [t + self.tp * (replica + self.dp * stage) for t in range(self.tp)]
                group = groups(members) if self.tp > 1 else None
                tp_group = group if rank in members else tp_group
            for shard in range(self.tp):
                members = [shard + self.tp * (d + self.dp * stage) for d in range(self.dp)]
                group = groups(members) if self.dp > 1 else None
                dp_group = group if rank in members else dp_group
        self.dp_group = dp_group
        layers = LAYERS // self.pp
        self.model = Stage(self.stage * layers, layers, self.tp, tp_group)
        near = self.tp * self.dp
        self.before, self.after = rank - near, rank + near
        del tp_at, dp_at

    def step(self) -> None:
        """Train one step: 1F1B, all receives posted at its beginning; then reduce gradients and update."""
        first, last = self.stage == 0, self.stage == self.pp - 1
        shape = (self.mbs * LENGTH, HIDDEN)
        acts = [torch.empty(shape) for _ in range(self.count)] if not first else []
        grads = [torch.empty(shape) for _ in range(self.count)] if not last else []
        come = [dist.irecv(x, self.before, tag=n) for n, x in enumerate(acts)]
        back = [dist.irecv(x, self.after, tag=1000 + n) for n, x in enumerate(grads)]
        sent: list[Any] = []
        held: dict[int, tuple[Tensor, Tensor]] = {}
        ids = torch.randint(VOCAB, (self.mbs, LENGTH))

        def forward(n: int) -> None:
            if not first:
                device.wait()
                come[n].wait()
                device.restart()
            x = ids if first else acts[n].requires_grad_()
            y = self.model.forward(x, ids if last else None)
            held[n] = (x, y)
            if not last:
                device.wait()
                sent.append((dist.isend(y.detach(), self.after, tag=n), y))

        def backward(n: int) -> None:
            x, y = held.pop(n)
            if last:
                y.backward()
            else:
                device.wait()
                back[n].wait()
                device.restart()
                y.backward(grads[n])
            if not first:
                device.wait()
                assert x.grad is not None
                sent.append((dist.isend(x.grad, self.before, tag=1000 + n), x.grad))

        warm = min(self.pp - 1 - self.stage, self.count)
        for n in range(warm):
            forward(n)
        for n in range(self.count - warm):
            forward(n + warm)
            backward(n)
        for n in range(self.count - warm, self.count):
            backward(n)
        for work, _ in sent:
            work.wait()
        if self.dp > 1:
            device.wait()
            dist.all_reduce(self.model.gradient, group=self.dp_group)
            device.restart()
        self.model.update()


class Process:
    """State of a rank."""

    def __init__(self, rank: int, schedule: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(rank)
        self.rank, self.schedule = rank, schedule
        store = dist.TCPStore(
            schedule["addresses"][0], 5801, schedule["ranks"], rank == 0, timeout=timedelta(seconds=300)
        )
        dist.init_process_group("gloo", store=store, rank=rank, world_size=schedule["ranks"])
        self._groups: dict[tuple[int, ...], Any] = {}
        self.between = Between("cpu")

    def run(self) -> list[dict[str, Any]]:
        """Do all variants; return what was measured in each."""
        found = []
        for number, variant in enumerate(self.schedule["variants"]):
            dist.barrier()
            what = {"operators": self._operators, "messages": self._messages}.get(variant["what"], self._train)
            measured = what(variant)
            if measured is not None:
                found.append({"variant": number, "rank": self.rank, **measured})
        dist.barrier()
        return found

    def _group(self, members: list[int]) -> Any:
        if tuple(members) not in self._groups:
            self._groups[tuple(members)] = dist.new_group(members)
        return self._groups[tuple(members)]

    def _operators(self, variant: dict[str, Any]) -> dict[str, Any] | None:
        """Time every operator on the emulated device of the first rank, by the clock."""
        if self.rank:
            return None
        times = []
        for name, shape in variant["operators"]:
            own, count = Device(), 0
            start_s = time.perf_counter()
            while time.perf_counter() - start_s < SHORT_S:
                own.run(name, shape)
                count += 1
            own.wait()
            times.append((time.perf_counter() - start_s) / count)
        return {"seconds": times}

    def _messages(self, variant: dict[str, Any]) -> dict[str, Any] | None:
        """Time collectives between the first two ranks."""
        times = []
        for kind, size, ranks, stride in variant["messages"]:
            message = MeasuredCollective(kind=kind, full_bytes=size, ranks=ranks, stride=stride)
            measured = self.between.measure(message, variant["steps"], pause_s=PAUSE_S)
            times.append(None if measured is None else measured[0])
        return None if self.rank else {"seconds": times}

    def _train(self, variant: dict[str, Any]) -> dict[str, Any] | None:
        """Train some steps with one strategy."""
        ranks = variant["dp"] * variant["tp"] * variant["pp"]
        if self.rank >= ranks:
            self._make_groups(variant)
            return None
        pipeline = Pipeline(self.rank, variant, self._group)
        everybody = self._group(list(range(ranks))) if ranks > 1 else None
        times: list[float] = []
        busy_s = 0.0
        for _ in range(WARM + variant["steps"]):
            before_s = device.busy_s
            if everybody is not None:
                dist.barrier(group=everybody)
            start_s = time.perf_counter()
            pipeline.step()
            if everybody is not None:
                dist.barrier(group=everybody)
            times.append(time.perf_counter() - start_s)
            busy_s = device.busy_s - before_s
        return {"steps_s": times[WARM:], "median_s": statistics.median(times[WARM:]), "busy_s": busy_s}

    def _make_groups(self, variant: dict[str, Any]) -> None:
        """Making a group needs all ranks, also those that are not in it."""
        Pipeline(self.rank, variant, self._group)
        ranks = variant["dp"] * variant["tp"] * variant["pp"]
        if ranks > 1:
            self._group(list(range(ranks)))


def main() -> None:
    """Run the schedule and write what was measured."""
    rank, schedule, out = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    # Other work on the machine must not hold up a rank that is woken by a message; ranks sleep most of the time.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    process = Process(rank, json.loads(schedule.read_text(encoding="utf-8")))
    out.write_text(json.dumps(process.run()), encoding="utf-8")
    os._exit(0)  # gloo's threads outlive their store, which rank 0 takes with it


if __name__ == "__main__":
    main()
