"""One scored split as a value, and its JSON form."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from forerun.simulator.opgraph import GraphContext, GraphScores
from forerun.simulator.opgraph.memory import RESERVE_BYTES, USABLE
from forerun.spaces.opgraph.split import NORM_HANDLING, Split

GIB = 2.0**30
MIXED_NORMS = "batch normalisation of each layer as its own split says"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRow:
    """A split with what it costs; ``breakdown_s`` adds up to ``step_time_s``. ``hidden_s``: gradient exchange under the
    backward pass; ``repeated_s``: device seconds that all parts of a replica spend on the same work; ``idle_s``: what
    kernels lose because they do not shrink with the parts; ``host_s``: what waiting for the host adds."""

    split: Split
    gpus: int
    global_batch: int
    step_time_s: float
    samples_per_s: float
    breakdown_s: dict[str, float]
    memory_gib: dict[str, float]
    peak_memory_gib: float
    memory_limit_gib: float
    fits: bool
    hidden_s: float
    repeated_s: float
    idle_s: float
    host_s: float
    loading_s: float
    bottleneck: str = ""
    rank: int = 0
    mixture: str = ""
    usd_per_gpu_hour: float | None = None

    @property
    def text(self) -> str:
        """The split as it is written; of a mixture, all of it."""
        return self.mixture or str(self.split)

    @property
    def cost(self) -> dict[str, float]:
        """USD per hour and per million samples; nothing without a price."""
        if self.usd_per_gpu_hour is None:
            return {}
        usd = self.usd_per_gpu_hour * self.gpus
        return {"cost_usd_per_hour": usd, "cost_usd_per_million_samples": usd / 3600.0 / self.samples_per_s * 1e6}

    @property
    def samples_per_s_per_gpu(self) -> float:
        """Throughput of one device."""
        return self.samples_per_s / self.gpus

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "rank": self.rank,
            "strategy": self.text,
            "family": "mixture" if self.mixture else self.split.family,
            "gpus": self.gpus,
            "global_batch": self.global_batch,
            "step_time_s": self.step_time_s,
            "samples_per_s": self.samples_per_s,
            "samples_per_s_per_gpu": self.samples_per_s_per_gpu,
            "peak_memory_gib": self.peak_memory_gib,
            "memory_limit_gib": self.memory_limit_gib,
            "fits": self.fits,
            "bottleneck": self.bottleneck,
            "breakdown_s": self.breakdown_s,
            "hidden_gradient_s": self.hidden_s,
            "memory_gib": self.memory_gib,
            **self.cost,
            "batch_norm": MIXED_NORMS if self.mixture else NORM_HANDLING[self.split.mode],
        }


def row_of(context: GraphContext, scores: GraphScores, index: int, serial_s: float) -> GraphRow:
    """Return one row; ``serial_s``: device seconds of one replica's batch on one device, all of it."""
    c, memory = scores.candidates, scores.memory
    split = c.splits[index]
    device, host = float(scores.device_s[index]), float(scores.host_s[index])
    repeated = float(scores.repeated_s[index])
    ideal = (serial_s - repeated) / split.parts if split.parts > 1 else serial_s - repeated
    return GraphRow(
        split=split,
        gpus=split.devices,
        global_batch=int(c.batch_N[index]),
        step_time_s=float(scores.step_s[index]),
        samples_per_s=float(scores.samples_per_s[index]),
        breakdown_s={name: float(values[index]) for name, values in scores.phases.items()},
        memory_gib={
            "parameters": float(memory.parameters_bytes[index]) / GIB,
            "gradients": float(memory.gradients_bytes[index]) / GIB,
            "optimizer": float(memory.optimizer_bytes[index]) / GIB,
            "activations": float(memory.activations_bytes[index]) / GIB,
            "working": float(memory.working_bytes[index]) / GIB,
            "buffers": float(memory.buffers_bytes[index]) / GIB,
            "reserve": RESERVE_BYTES / GIB,
        },
        peak_memory_gib=float(memory.peak_bytes[index]) / GIB,
        memory_limit_gib=USABLE * context.cluster.device.memory_bytes / GIB,
        fits=bool(scores.fits_N[index]),
        hidden_s=float(np.maximum(scores.hidden_s[index], 0.0)),
        repeated_s=repeated,
        idle_s=max(device - repeated - ideal, 0.0),
        host_s=max(host - device, 0.0),
        loading_s=float(scores.loading_s[index]),
        usd_per_gpu_hour=context.cluster.usd_per_device_hour,
    )


def phases(row: GraphRow) -> dict[str, float]:
    """Return the four phases of a step: input, forward and backward with their communication, gradient exchange with
    the wait for the slowest replica, weight update."""
    parts = row.breakdown_s
    between = sum(parts[name] for name in ("halo", "collective", "tail", "hop", "bubble"))
    return {
        "input": parts["input"],
        "forward and backward": parts["forward"] + parts["backward"] + between,
        "gradient exchange": parts["gradient"] + parts["straggle"],
        "weight update": parts["update"],
    }
