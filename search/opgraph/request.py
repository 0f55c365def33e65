"""What a user asks about an operator graph, and what it means with every default filled in."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forerun.simulator.opgraph import GraphContext
from forerun.spaces.budget import parse_budget
from forerun.spaces.clusters import resolve_cluster
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.clusters.device import Device
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.platform import platform_cluster
from forerun.spaces.opgraph.profile import load_graph_profile, with_optimizer
from forerun.spaces.opgraph.resolve import resolve_graph_model
from forerun.spaces.opgraph.split import Mode

DEFAULT_PROFILE = "pytorch-ddp"
DEFAULT_TOP = 10
LARGEST_BATCH = 1 << 24
OBJECTIVES = {
    "throughput": "most samples per second",
    "cost": "most samples per second and GPU",
    "gpus": "fewest GPUs that fit",
    "headroom": "most free memory on the fullest GPU",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """A request; None means not given. ``global_batch`` in samples. ``seconds_per_sample``: measured on one device.

    ``modes``: names of the ways of splitting to look at (None: all). ``allow_generic``: imported operators without a
    rule are costed by their bytes and operations. ``optimizer``: of ``OPTIMIZERS`` (None: the profile's).
    ``usd_per_gpu_hour``: price of one device (None: the cluster's, if it has one).
    """

    model: str
    cluster: str
    global_batch: int | PerDevice
    gpus: str | None = None
    precision: str | None = None
    framework: str | None = None
    objective: str | None = None
    top: int | None = None
    seconds_per_sample: float | None = None
    modes: tuple[str, ...] | None = None
    allow_generic: bool = False
    optimizer: str | None = None
    usd_per_gpu_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSetting:
    """A request resolved. ``counts``: numbers of devices to look at, None where none were named."""

    request: GraphRequest
    context: GraphContext
    counts: tuple[int, ...] | None
    objective: str
    top: int
    modes: tuple[Mode, ...]
    defaults: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    def batch(self, devices: int) -> int:
        """Return the global batch on so many devices."""
        asked = self.request.global_batch
        return asked.samples * devices if isinstance(asked, PerDevice) else asked

    def remarks(self) -> tuple[str, ...]:
        """Return what was filled in and what is to be noted, as lines."""
        filled = (f"defaults used: {'; '.join(self.defaults)}",) if self.defaults else ()
        return (*filled, *(f"note: {note}" for note in self.notes))

    def to_json(self) -> dict[str, Any]:
        """Return the request with every default filled in."""
        data = dataclasses.asdict(self.request)
        return data | {
            "global_batch": str(self.request.global_batch)
            if isinstance(self.request.global_batch, PerDevice)
            else self.request.global_batch,
            "model_name": self.context.model.name,
            "cluster_name": self.context.cluster.name,
            "precision": self.context.precision,
            "framework": self.context.profile.name,
            "gpu_counts": None if self.counts is None else list(self.counts),
            "objective": self.objective,
            "top": self.top,
            "modes": [mode.name.lower() for mode in self.modes],
            "defaults": list(self.defaults),
            "notes": list(self.notes),
        }


def resolve_request(request: GraphRequest) -> GraphSetting:
    """Return what a request means.

    Raises:
        RequestError: any part of it is unknown, or out of bounds.
    """
    asked = request.global_batch
    size = asked.samples if isinstance(asked, PerDevice) else asked
    if not 1 <= size <= LARGEST_BATCH:
        raise RequestError(f"global batch must lie between 1 and {LARGEST_BATCH}, but got {asked}")
    if request.objective is not None and request.objective not in OBJECTIVES:
        raise unknown("objective", request.objective, OBJECTIVES)
    cluster = _cluster(request.cluster)
    if request.usd_per_gpu_hour is not None:
        if not 0 < request.usd_per_gpu_hour < 1e6:
            raise RequestError(f"usd_per_gpu_hour must be more than 0, but got {request.usd_per_gpu_hour}")
        cluster = dataclasses.replace(cluster, usd_per_device_hour=request.usd_per_gpu_hour)
    model, notes = resolve_graph_model(request.model, allow_generic=request.allow_generic)
    precision = request.precision or default_precision(cluster.device)
    cluster.device.peak(precision)
    context = GraphContext(
        model=model,
        cluster=cluster,
        profile=with_optimizer(load_graph_profile(request.framework or DEFAULT_PROFILE), request.optimizer),
        precision=precision,
        seconds_per_sample=request.seconds_per_sample,
    )
    budget = None if request.gpus is None else parse_budget(request.gpus)
    return GraphSetting(
        request=request,
        context=context,
        counts=None if budget is None else budget.device_counts(cluster),
        objective=request.objective or "throughput",
        top=DEFAULT_TOP if request.top is None else request.top,
        modes=tuple(Mode) if request.modes is None else tuple(_mode(name) for name in request.modes),
        defaults=_defaults(request, precision, cluster.defaults),
        notes=(*model.notes, *notes),
    )


def _cluster(text: str) -> Cluster:
    """Return the cluster of a name, a YAML file or a ParaDL platform."""
    path = Path(text)
    if path.suffix.lower() == ".plat" and path.is_file():
        return platform_cluster(path)
    return resolve_cluster(text)


def default_precision(device: Device) -> str:
    """Return what frameworks train convolutions in unless told otherwise: tf32 where the device has it, else fp32.

    Raises:
        RequestError: the device has neither.
    """
    for precision in ("tf32", "fp32"):
        if precision in device.peak_flops_per_s:
            return precision
    known = ", ".join(device.peak_flops_per_s)
    raise RequestError(f"{device.title} has neither tf32 nor fp32 rates; add --precision, one of {known}")


def choices_by_axis(overrides: Mapping[str, list[object]] | list[str]) -> tuple[str, ...] | None:
    """Return the modes that ``--set mode=data,filter`` names, None without it.

    Raises:
        RequestError: another axis is set, or a mode is unknown.
    """
    modes: tuple[str, ...] | None = None
    for text in overrides:
        axis, _, values = text.partition("=")
        if axis.strip() != "mode":
            raise RequestError(f"operator graphs have the axis mode, but got {text!r}; write mode=data,filter")
        modes = tuple(value.strip() for value in values.split(",") if value.strip())
        if not modes:
            raise RequestError(f"--set names one choice or more, like mode=data,filter, but got {text!r}")
        for name in modes:
            _mode(name)
    return modes


def _mode(name: str) -> Mode:
    known = {mode.name.lower(): mode for mode in Mode}
    if name not in known:
        raise unknown("mode", name, known)
    return known[name]


def _defaults(request: GraphRequest, precision: str, cluster: tuple[str, ...]) -> tuple[str, ...]:
    filled = []
    if request.precision is None:
        filled.append(f"precision {precision}")
    if request.framework is None:
        filled.append(f"framework {DEFAULT_PROFILE}")
    if request.seconds_per_sample is None:
        filled.append("one-GPU time by the cost rules")
    return (*filled, *(f"cluster {default}" for default in cluster))
