"""What a row of a data-parallel scaling table means: model, machine and software, in forerun's terms.

Everything that a table does not say is stated here once: wiring of a machine from its name, how a framework exchanges
gradients from its documentation, parameters of models that the catalogue does not describe layer by layer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from forerun.simulator.modes import GradientLayer, GradientProfile
from forerun.simulator.modes.models import graph_profile
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.clusters import Cluster, resolve_cluster
from forerun.spaces.clusters.catalogue import cluster_from_mapping
from forerun.spaces.opgraph import graph_model_names, is_graph_model, load_graph_model
from forerun.spaces.opgraph.profile import GraphProfile, load_graph_profile

OTHERS: Mapping[str, tuple[float, int, str]] = {
    "inception4": (42.7e6, 299, "cnn"),
    "googlenet": (6.6e6, 57, "cnn"),
    "resnext10132x4d": (44.2e6, 209, "cnn"),
    "seresnext10132x4d": (49.0e6, 275, "cnn"),
    "overfeat": (145.7e6, 8, "cnn"),
    "vgg11": (132.9e6, 11, "cnn"),
    "vgg13": (133.0e6, 13, "cnn"),
    "densenet40k12": (1.0e6, 80, "cnn"),
    "nasnet": (5.3e6, 500, "cnn"),
    "nasnetlarge": (88.9e6, 900, "cnn"),
    "mobilenet": (4.2e6, 54, "cnn"),
    "efficientnetb0": (5.3e6, 130, "cnn"),
    "efficientnetb4": (19.3e6, 260, "cnn"),
    "ssd300": (26.3e6, 80, "cnn"),
    "ssd": (26.3e6, 80, "cnn"),
    "maskrcnn": (44.4e6, 150, "cnn"),
    "bert": (336e6, 24, "transformer"),
    "bertlarge": (336e6, 24, "transformer"),
    "bertbase": (110e6, 12, "transformer"),
    "transformer": (210e6, 12, "transformer"),
    "transformerxl": (192e6, 16, "transformer"),
    "transformerxlbase": (192e6, 16, "transformer"),
    "transformerxllarge": (257e6, 18, "transformer"),
    "electra": (110e6, 12, "transformer"),
    "gnmt": (160e6, 16, "transformer"),
    "tacotron2": (28.2e6, 20, "transformer"),
    "waveglow": (87.9e6, 96, "transformer"),
}
"""Parameters, tensors or layers, and family, from the papers of the models: what is not in the catalogue."""

TABLED = {
    "rn50": "resnet50",
    "resnet50v15": "resnet50",
    "rn50v15": "resnet50",
    "inceptionv3": "inception-v3",
    "inception3": "inception-v3",
}
"""Other names of models of the catalogue; upper case, blanks, dots, - and _ do not count."""

HOSTS = {
    "gold6230": {"sockets": 2, "socket_rate": "10GB/s"},
    "platinum": {"sockets": 2, "socket_rate": "10GB/s"},
    "3970x": {"sockets": 1, "socket_rate": "24GB/s"},
    "3960x": {"sockets": 1, "socket_rate": "24GB/s"},
    "i7": {"sockets": 1, "socket_rate": "10GB/s"},
    "": {"sockets": 2, "socket_rate": "24GB/s"},
}
"""Sockets of a machine by the beginning of its name, and what passes between them (NCCL: 10 GB/s for Skylake; 24 GB/s
is what AMD servers show); the last is the rest, which are AMD servers."""

STAGED = "24GB/s"
"""GeForce cards cannot reach each other: copies go through the host, as in the catalogue's machine with RTX 4090."""

MACHINES = (
    (r"dgx a100.*40gb|a100-sxm4-40", "dgx-a100-40"),
    (r"dgx a100|a100-sxm4", "dgx-a100-80"),
    (r"dgx h100", "dgx-h100"),
    (r"dgx-2|v100-sxm3", "dgx2-v100"),
    (r"dgx-1.*32|v100-sxm2-32", "dgx1-v100"),
    (r"p100", "dgx1-p100"),
    (r"dgx-1|v100-sxm2", "dgx1-v100-16"),
    (r"abci", "abci-v100"),
)
"""Machines of the catalogue by a pattern of their name, the first that fits."""


@dataclass(frozen=True, kw_only=True)
class Software:
    """How a framework exchanges gradients: one per variable or in buckets, under the backward pass or after it, with
    how many bytes per parameter; whether parameters lie on servers, and whether element-wise operators cost no pass of
    their own. ``rules``: the profile of the catalogue that it is most like, with its buckets."""

    rules: GraphProfile
    wire_bytes: float
    server: bool
    fused: bool


class Skipped(Exception):
    """The row says too little, or names what is not known."""


@lru_cache(maxsize=64)
def machine(hardware: str, nodes: int, inter_link: str) -> Cluster:
    """Return the machines of a row.

    Raises:
        Skipped: the name is not known.
    """
    name = hardware.lower().replace("_", " ")
    found = next((cluster for pattern, cluster in MACHINES if re.search(pattern, name)), None)
    if found is not None and nodes == 1:
        return resolve_cluster(found)
    if found is not None:
        return _joined(found, inter_link)
    if "k80" in name:
        data: dict[str, Any] = {"device": "k80", "devices_per_node": 8, "host": dict(HOSTS["gold6230"])}
        if nodes > 1:
            data["network"] = {"kind": "ethernet", "nics_per_node": 1, "nic_rate": "10Gb/s"}
            data["max_devices"] = 8 * nodes
        return cluster_from_mapping(data, name="k80 machines")
    if nodes == 1 and re.search(r"rtx|gtx|titan|radeon|a100-pcie|a6000|v100|quadro|t4|p40", name):
        return _box(name)
    raise Skipped(f"machine {hardware} is not known")


def _joined(name: str, inter_link: str) -> Cluster:
    """Return machines of the catalogue with the network that the row states."""
    link = re.match(r"(\d+)x [EHF]DR InfiniBand (\d+) Gb/s", inter_link)
    if link is None or name not in ("dgx1-v100-16", "dgx1-v100"):
        return resolve_cluster(name)
    data = {
        "device": "v100-sxm2-16",
        "devices_per_node": 8,
        "max_devices": 1024,
        "scale_up": {"kind": "nvlink-mesh", "mesh": "cube"},
        "network": {"kind": "infiniband", "nics_per_node": int(link[1]), "nic_rate": f"{link[2]}Gb/s"},
    }
    return cluster_from_mapping(data, name=f"{name} with {inter_link}")


def _box(name: str) -> Cluster:
    """Return a machine with cards on PCIe: links count here, not the device."""
    host: dict[str, Any] = dict(next(host for key, host in HOSTS.items() if name.replace(" ", "").startswith(key)))
    fourth = not re.search(r"gold|i7|platinum", name) and re.search(r"30\d\d|a100|a6000|radeon", name)
    if re.search(r"geforce|gtx", name):
        host["staged_rate"] = STAGED
    else:
        host["peer_access"] = True
    count = 4 if host["sockets"] == 1 else 8
    data = {"device": "rtx4090" if fourth else "titan-rtx", "devices_per_node": count, "host": host}
    return cluster_from_mapping(data, name=name)


def described(hardware: str, cluster: Cluster) -> bool:
    """Whether the device of ``machine`` is the row's own and not one that only has links like it."""
    own = {"titan-rtx": r"titan.rtx|rtx.(8000|6000)", "rtx4090": r"4090"}
    return re.search(own.get(cluster.device.name, ""), hardware.lower()) is not None


def software(framework: str, precision: str, update: str) -> Software:
    """Return how a row's framework exchanges gradients."""
    name, half = framework.lower(), precision.lower() in ("fp16", "amp", "mixed fp16")
    wire = 2.0 if half else 4.0
    if "tf_cnn" in name:
        server = "parameter_server" in update or "distributed" in update
        # One all-reduce per variable (its documentation); a graph compiled as one piece hands them over at its end.
        rules = replace(
            load_graph_profile("pytorch-ddp"),
            name="tf_cnn_benchmarks",
            bucket_bytes=1.0,
            first_bucket_bytes=None,
            overlap=0.0 if "xla" in name else 1.0,
        )
        return Software(rules=rules, wire_bytes=wire, server=server, fused="xla" in name)
    if "chainer" in name:
        return Software(rules=load_graph_profile("chainermn"), wire_bytes=4.0, server=False, fused=False)
    if "pytorch" in name:
        # Apex and native AMP keep fp32 parameters, DistributedDataParallel sends their gradients.
        return Software(rules=load_graph_profile("pytorch-ddp"), wire_bytes=4.0, server=False, fused=False)
    # Horovod's buffer, or of that size. Channels-last batch norm with its activation is one kernel there.
    return Software(rules=load_graph_profile("horovod"), wire_bytes=wire, server=False, fused=True)


def known_name(model: str) -> str:
    """Return the key of a model, of the catalogue or of ``OTHERS``; what follows a known name is taken for its version.

    Raises:
        Skipped: no name is known.
    """
    bare = re.sub(r"[^a-z0-9]", "", model.lower())
    names = {
        **{re.sub(r"[^a-z0-9]", "", name): name for name in graph_model_names()},
        **{name: name for name in OTHERS},
    }
    names |= TABLED
    begun = [name for name in names if bare.startswith(name)]
    if not begun:
        raise Skipped(f"model {model} is not known")
    return names[max(begun, key=len)]


def profile_of(
    model: str, batch: float, cluster: Cluster, precision: str, *, fused: bool
) -> tuple[GradientProfile, bool]:
    """Return a worker's profile, and whether its times are those of the device and not only their proportions.

    Raises:
        Skipped: the model is not known.
    """
    bare = known_name(model)
    if is_graph_model(bare):
        exact = precision in cluster.device.peak_flops_per_s
        words = precision if exact else next(iter(cluster.device.peak_flops_per_s))
        rules = replace(load_graph_profile("ideal"), fuses_elementwise=fused)
        context = GraphContext(model=load_graph_model(bare), cluster=cluster, profile=rules, precision=words)
        return graph_profile(context, batch), exact
    parameters, tensors, family = OTHERS[bare]
    return spread(model, 4 * parameters, tensors, family, batch), False


def spread(name: str, size: float, tensors: int, family: str, batch: float) -> GradientProfile:
    """Return a profile of even times: channels of a convolutional network grow with depth, so that its parameters grow
    with the square of it; a transformer's layers are alike behind an embedding of a tenth of the parameters."""
    if family == "cnn":
        shares = [(number + 1.0) ** 2 for number in range(tensors)]
    else:
        shares = [0.1 * tensors / 0.9, *[1.0] * tensors]
    times = [1.0] * len(shares)
    rows = zip(shares, times, strict=True)
    layers = tuple(
        GradientLayer(
            name=f"{name} {number}",
            parameter_bytes=size * share / sum(shares),
            forward_s=time / sum(times) / 3,
            backward_s=2 * time / sum(times) / 3,
        )
        for number, (share, time) in enumerate(rows)
    )
    return GradientProfile(name=name, layers=layers, batch=batch)
