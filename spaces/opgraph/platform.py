"""A ParaDL platform as a cluster with one rate and one latency between all devices, the content of its file."""

from pathlib import Path

from forerun.spaces.clusters.cluster import Cluster, Level
from forerun.spaces.clusters.device import Device
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.net_file import Platform, read_platform

BYTES_PER_FLOP = 0.057
"""Ratio of memory bandwidth to fp32 rate, which the file does not have: a V100's (900 GB/s, 15.7 TFLOP/s)."""

UNITS = 80
"""Compute units, which the file does not have: a V100's."""


def platform_cluster(path: Path) -> Cluster:
    """Return the cluster of a ``.plat`` file; missing values are those of a V100 and are listed among the defaults.

    Raises:
        RequestError: the file cannot be read, or its devices do not fill nodes.
    """
    platform = read_platform(path)
    if platform.devices % platform.devices_per_node:
        raise RequestError(
            f"{path.name}: gpus must be a multiple of gpus_per_node, but got {platform.devices} and "
            f"{platform.devices_per_node}"
        )
    memory_rate = platform.flops_per_s * BYTES_PER_FLOP
    return Cluster(
        name=path.stem,
        title=f"ParaDL platform {path.name}",
        device=_device(platform, path.stem, memory_rate),
        devices_per_node=platform.devices_per_node,
        max_devices=platform.devices,
        levels=_levels(platform),
        host={},
        source=f"ParaDL .plat file {path.name}",
        defaults=(
            f"memory rate {memory_rate / 1e9:.0f} GB/s and {UNITS} compute units (in proportion to a V100)",
            "one rate between all devices, in a node and across",
        ),
    )


def _device(platform: Platform, name: str, memory_rate: float) -> Device:
    return Device(
        name=f"{name}-device",
        title=f"device of {name}",
        vendor="",
        architecture="Volta sm70",
        memory_bytes=platform.memory_bytes,
        memory_bytes_per_s=memory_rate,
        peak_flops_per_s={"fp32": platform.flops_per_s},
        compute_units=UNITS,
        matmul_ceiling={"fp32": 0.869},
        memory_efficiency=0.8,
        watts=None,
        usd_per_hour=None,
        source=f"ParaDL .plat file of {name}",
    )


def _levels(platform: Platform) -> tuple[Level, ...]:
    sizes = sorted({platform.devices_per_node, platform.devices} - {1})
    return tuple(
        Level(
            name="node" if size < platform.devices else "network",
            size=size,
            kind="infiniband",
            bytes_per_s=platform.bytes_per_s,
            port_bytes_per_s=platform.bytes_per_s,
            latency_s=platform.latency_s,
        )
        for size in sizes
    )
