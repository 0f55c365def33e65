"""The context of a request for an operator graph, with notes on it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from forerun.simulator.memory.risk import share_at
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.context import USABLE
from forerun.simulator.opgraph.memory import largest_batch
from forerun.spaces.clusters import resolve_cluster
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.batch import LARGEST, PerDevice
from forerun.spaces.opgraph.platform import platform_cluster
from forerun.spaces.opgraph.profile import (
    DEFAULT_PROFILE,
    default_precision,
    load_graph_profile,
    with_graph_switches,
    with_optimizer,
)
from forerun.spaces.opgraph.resolve import resolve_graph_model

LARGEST_BATCH = 1 << 24


def graph_context(
    *,
    model: str,
    cluster: Cluster,
    global_batch: int | PerDevice,
    precision: str | None,
    framework: str | None,
    optimizer: str | None = None,
    switches: Mapping[str, str] | None = None,
    seconds_per_sample: float | None = None,
    allow_generic: bool = False,
    shapes: Sequence[str] = (),
    oom_risk: float | None = None,
    inference: bool = False,
) -> tuple[GraphContext, tuple[str, ...]]:
    """Return the context of a request, and notes on its model. None means unstated.

    ``global_batch`` in samples. ``optimizer``: of ``OPTIMIZERS`` (None: the profile's). ``switches``: settings of the
    exchange of gradients. ``seconds_per_sample``: measured forward and backward pass on one device. ``allow_generic``:
    imported operators without a rule are costed by their bytes and operations. ``shapes``: open input extents of an
    ONNX file (``x=3x640x640``). ``oom_risk``: the highest OOM risk. ``inference``: only the forward pass.

    Raises
    ------
    RequestError
        A part of the request is unknown or out of bounds.
    """
    fitting = global_batch == LARGEST
    if fitting:
        global_batch = PerDevice(1)
    size = global_batch.samples if isinstance(global_batch, PerDevice) else global_batch
    if not 1 <= size <= LARGEST_BATCH:
        raise RequestError(f"global batch must be between 1 and {LARGEST_BATCH}, but got {global_batch}")
    graph, notes = resolve_graph_model(model, allow_generic=allow_generic, shapes=shapes)
    chosen = precision or default_precision(cluster.device)
    cluster.device.peak(chosen)  # refuses precisions that the device lacks
    context = GraphContext(
        model=graph,
        cluster=cluster,
        profile=with_graph_switches(
            with_optimizer(load_graph_profile(framework or DEFAULT_PROFILE), optimizer), switches or {}
        ),
        precision=chosen,
        seconds_per_sample=seconds_per_sample,
        global_batch=global_batch,
        memory_share=USABLE if oom_risk is None else min(USABLE, share_at(oom_risk)),
        inference=inference,
    )
    if fitting:
        context = replace(context, global_batch=PerDevice(largest_batch(context)))
        notes = (
            *notes,
            f"{context.global_batch}: the largest power of two of samples that fits into a device's memory",
        )
    return context, (*graph.notes, *notes)


def graph_cluster(text: str) -> Cluster:
    """Return the cluster of a name, a YAML file or a ParaDL platform.

    Raises
    ------
    RequestError
        The text names neither a cluster nor a file of one.
    """
    path = Path(text)
    if path.suffix.lower() == ".plat" and path.is_file():
        return platform_cluster(path)
    return resolve_cluster(text)
