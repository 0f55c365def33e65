"""Measurement of collectives between ranks of a launcher (torchrun): gloo on CPUs, NCCL on GPUs. Imports torch.

Every rank calls ``measure`` with the same plan; the result of rank 0 is used (the slowest rank's time of every
reading).
"""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from forerun.search.measured.profiling.messages import MeasuredCollective
from forerun.search.measured.profiling.timing import by_clock, on_cuda

_WARM, _INNER = 1, 5
"""Warm-up readings; collectives between two device events, so that launches overlap."""
_WAIT = timedelta(hours=24)


def launched() -> bool:
    """Whether this process is one of several ranks of a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def begin(device: str) -> tuple[int, int]:
    """Join the other ranks; return (rank, number of ranks)."""
    if device.startswith("cuda"):
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=_WAIT)
    return dist.get_rank(), dist.get_world_size()


class Between:
    """The ranks of this run, with a group for every requested (ranks, stride)."""

    def __init__(self, device: str) -> None:
        self.device, self.rank = device, dist.get_rank()
        self._groups: dict[tuple[int, int], Any] = {}

    def measure(self, message: MeasuredCollective, repeat: int, *, pause_s: float = 0.0) -> tuple[float, float] | None:
        """Return median seconds and spread (half the quartiles' distance over the median) of a collective; None on
        ranks outside it. All ranks must call it. ``pause_s`` before every reading imitates computation, so that
        networks with burst credit recover.
        """
        members = [place * message.stride for place in range(message.ranks)]
        shape = (message.ranks, message.stride)
        if shape not in self._groups:
            self._groups[shape] = dist.new_group(members)
        if self.rank not in members:
            dist.barrier()
            return None
        group = self._groups[shape]
        middle, spread = _middle(self._times(self._once(message, members, group), group, repeat, pause_s))
        if message.kind == "send_recv":
            note = replace(message, full_bytes=8)
            backward_s, _ = _middle(self._times(self._once(note, members, group), group, repeat, pause_s))
            middle = max(middle - backward_s / 2, backward_s / 2)  # the acknowledgement is not part of the time
        dist.barrier()
        return middle, spread

    def _times(self, once: Callable[[], Any], group: Any, repeat: int, pause_s: float) -> list[float]:
        """Return ``repeat`` readings of the slowest member of a group."""
        times = []
        for turn in range(_WARM + repeat):
            time.sleep(pause_s)
            dist.barrier(group=group)
            seconds = on_cuda(once, _INNER) if self.device.startswith("cuda") else by_clock(once, 1)
            if turn >= _WARM:
                times.append(seconds)
        slowest = torch.tensor(times, dtype=torch.float64, device=self.device)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX, group=group)
        times_s: list[float] = slowest.tolist()
        return times_s

    def _once(self, message: MeasuredCollective, members: Sequence[int], group: Any) -> Callable[[], Any]:
        count = max(1, message.full_bytes // 4 // len(members)) * len(members)
        buffer = torch.zeros(count, device=self.device)
        part = torch.zeros(count // len(members), device=self.device)
        match message.kind:
            case "all_reduce":
                return lambda: dist.all_reduce(buffer, group=group)
            case "all_gather":
                return lambda: dist.all_gather_into_tensor(buffer, part, group=group)
            case "reduce_scatter":
                return lambda: dist.reduce_scatter_tensor(part, buffer, group=group)
            case "all_to_all":
                other = torch.zeros_like(buffer)
                return lambda: dist.all_to_all_single(other, buffer, group=group)
            case "broadcast":
                return lambda: dist.broadcast(buffer, members[0], group=group)
            case _:
                # Every rank sends to the next, and one byte back acknowledges it.
                note = torch.zeros(1, device=self.device)

                def ping() -> None:
                    if self.rank == members[0]:
                        dist.send(buffer, members[1], group=group)
                        dist.recv(note, members[1], group=group)
                    else:
                        dist.recv(buffer, members[0], group=group)
                        dist.send(note, members[0], group=group)

                return ping

    def close(self) -> None:
        """Leave the other ranks."""
        dist.barrier()
        dist.destroy_process_group()


def _middle(times: Sequence[float]) -> tuple[float, float]:
    middle = statistics.median(times)
    low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (middle, middle, middle)
    return middle, (high - low) / (2 * middle)
