"""The context of a request for an operator graph, with notes on it."""

from dataclasses import replace
from pathlib import Path

from forerun.search.request.request import Request
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


def graph_context(request: Request, cluster: Cluster) -> tuple[GraphContext, tuple[str, ...]]:
    """Return the context of a request for an operator graph on a cluster, and notes on its model.

    Raises
    ------
    RequestError
        A part of the request is unknown or out of bounds.
    """
    batch, risk = request.global_batch, request.oom_risk
    fitting = batch == LARGEST
    if fitting:
        batch = PerDevice(1)
    size = batch.samples if isinstance(batch, PerDevice) else batch
    if not 1 <= size <= LARGEST_BATCH:
        raise RequestError(f"global batch must be between 1 and {LARGEST_BATCH}, but got {batch}")
    graph, notes = resolve_graph_model(request.model, allow_generic=request.allow_generic, shapes=request.shapes)
    precision = request.precision or default_precision(cluster.device)
    cluster.device.peak(precision)  # refuses precisions that the device lacks
    profile = with_optimizer(load_graph_profile(request.framework or DEFAULT_PROFILE), request.optimizer)
    context = GraphContext(
        model=graph,
        cluster=cluster,
        profile=with_graph_switches(profile, request.switches),
        precision=precision,
        seconds_per_sample=request.seconds_per_sample,
        global_batch=batch,
        memory_share=USABLE if risk is None else min(USABLE, share_at(risk)),
        inference=request.inference,
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
