"""A profiler that writes how many steps it has seen where PyTorch's would write a trace."""

from collections.abc import Callable
from typing import Any


class ProfilerActivity:
    CPU, CUDA = "cpu", "cuda"


def schedule(**phases: int) -> dict[str, int]:
    return phases


class profile:  # PyTorch's own name
    def __init__(self, *, schedule: dict[str, int], on_trace_ready: Callable[[Any], None], **options: Any) -> None:
        self.schedule, self.ready, self.steps, self.running = schedule, on_trace_ready, 0, False

    def start(self) -> None:
        self.running = True

    def step(self) -> None:
        assert self.running
        self.steps += 1
        if self.steps == self.schedule["warmup"] + self.schedule["active"]:
            self.ready(self)

    def stop(self) -> None:
        self.running = False

    def export_chrome_trace(self, path: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{self.steps} steps, {self.schedule['active']} of them kept")
