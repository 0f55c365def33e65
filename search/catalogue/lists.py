"""Tables of the catalogue's entries, as plain data.

Building every model is the slowest part of ``forerun list``, so ``data/models.json`` stores their lines; ``python -m
forerun.search.catalogue.lists`` prints the file and a test compares it with the models.
"""

import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

GIB = 2.0**30
TERA = 1e12
GIGA = 1e9


def list_models() -> list[dict[str, Any]]:
    """Return a line for every model; ``layers`` of an operator graph counts operators."""
    text = files("forerun.search.catalogue").joinpath("data", "models.json").read_text(encoding="utf-8")
    lines: list[dict[str, Any]] = json.loads(text)
    return lines


def lines_of_models() -> list[dict[str, Any]]:
    """Build every model and return its line of ``data/models.json``."""
    from forerun.search.catalogue.facts import extents
    from forerun.spaces.models import active_parameters, load_model, model_names, parameter_count
    from forerun.spaces.opgraph import graph_model_names, load_graph_model

    lines = []
    for name in model_names():
        model = load_model(name)
        lines.append(
            {
                "model": name,
                "parameters": parameter_count(model),
                "active": active_parameters(model),
                "layers": model.layer_count,
                "hidden": model.hidden,
                "vocab": model.vocab,
                "input": None,
            }
        )
    for name in graph_model_names():
        described = load_graph_model(name)
        lines.append(
            {
                "model": name,
                "parameters": described.parameters,
                "active": described.parameters,
                "layers": len(described.operators),
                "hidden": None,
                "vocab": None,
                "input": extents(described.input),
            }
        )
    return lines


def list_clusters() -> list[dict[str, Any]]:
    """Return a line for every cluster; network rate in GB/s per device and direction."""
    from forerun.spaces.clusters import cluster_names, load_cluster

    lines = []
    for name in cluster_names():
        cluster = load_cluster(name)
        lines.append(
            {
                "cluster": name,
                "device": cluster.device.name,
                "per_node": cluster.devices_per_node,
                "fast_domain": cluster.scale_up_size,
                "network_gb_per_s": cluster.levels[-1].bytes_per_s / GIGA if cluster.levels else None,
                "title": cluster.title,
            }
        )
    return lines


def list_devices() -> list[dict[str, Any]]:
    """Return a line for every device; dense peaks in TFLOP/s."""
    from forerun.spaces.clusters import device_names, load_device

    lines = []
    for name in device_names():
        device = load_device(name)
        peaks = device.peak_flops_per_s
        lines.append(
            {
                "device": name,
                "memory_gib": device.memory_bytes / GIB,
                "gb_per_s": device.memory_bytes_per_s / GIGA,
                **{f"{p}_tflops": peaks[p] / TERA if p in peaks else None for p in ("bf16", "fp16", "fp8")},
            }
        )
    return lines


def list_frameworks() -> list[dict[str, Any]]:
    """Return a line for every framework profile; profiles for operator graphs have splits in place of degrees."""
    from forerun.spaces.frameworks import framework_names, load_framework
    from forerun.spaces.opgraph.profile import graph_profile_names
    from forerun.spaces.opgraph.split import Mode

    lines = []
    for name in framework_names():
        legality = load_framework(name).legality
        degrees = {
            "tp": legality.tensor_parallel,
            "cp": legality.context_parallel,
            "ep": legality.expert_parallel,
            "etp": legality.expert_tensor,
            "pp": legality.pipeline_parallel,
        }
        lines.append(
            {
                "framework": name,
                "degrees": ["dp", *(degree for degree, offered in degrees.items() if offered)],
                "zero": list(legality.zero_stages),
                "schedules": list(legality.schedules),
                "recompute": list(legality.recompute),
            }
        )
    for name in graph_profile_names():
        modes = [mode.name.lower() for mode in Mode]
        lines.append({"framework": name, "degrees": modes, "zero": [], "schedules": ["gpipe"], "recompute": []})
    return lines


LISTS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "models": list_models,
    "clusters": list_clusters,
    "devices": list_devices,
    "frameworks": list_frameworks,
}
"""The tables by kind."""


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(line) for line in lines_of_models()) + "\n]")
