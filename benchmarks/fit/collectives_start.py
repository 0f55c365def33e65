"""Where the fit of collectives starts, what it frees per kind of link, and the kinds that keep published constants."""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.simulator.costs.collectives.constants import LinkConstants, Table

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
SWEEP = (
    *(f"efficiency:{name}" for name in COLLECTIVES[:4]),
    *(
        "fraction:0",
        "fraction:1",
        "base_s:0",
        "base_s:1",
        "base_s:2",
        "ring_step_s:0",
        "ring_step_s:1",
        "ring_step_s:2",
    ),
    *("own_share", "peer_s"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One kind of link to fit: the settings whose rows it explains and the fields that are free."""

    key: str
    settings: tuple[str, ...]
    free: tuple[str, ...]


def _us(*values: float) -> tuple[float, float, float]:
    first, second, third = (value * 1e-6 for value in values)
    return first, second, third


def _efficiency(ring: float, exchange: float, send: float) -> Mapping[str, float]:
    return dict(zip(COLLECTIVES, (ring, ring, ring, exchange, send), strict=True))


# Base and hop latencies of NCCL's own model (src/graph/tuning.cc, 2.2x), LL / LL128 / Simple: what a kind without
# small-message measurements keeps.
_NCCL_BASE_S = _us(6.6, 14.0, 8.4)
_NCCL_NVLINK_STEP_S = _us(0.6, 1.9, 3.4)
_NCCL_NET_STEP_S = _us(2.7, 4.0, 14.0)
_NCCL_NET_TREE_STEP_S = _us(5.0, 8.5, 14.0)

_NVSWITCH = {
    "nominal_latency_s": 0.6e-6,
    "fraction": (0.3, 0.6, 1.0),
    "base_s": _us(6.0, 10.0, 40.0),
    "ring_step_s": _us(1.1, 2.0, 5.0),
    "own_share": 0.4,
    "peer_s": 0.2e-6,
    # Sends are not in the sweeps: a direct NVLink reaches 0.90 (nvlink-mesh3), a ring in the switch 0.78.
    "efficiency": _efficiency(0.77, 0.74, 0.78),
}
_NET = {
    "nominal_latency_s": 2.7e-6,
    "fraction": (0.25, 0.9, 1.0),
    "base_s": _NCCL_BASE_S,
    "ring_step_s": _NCCL_NET_STEP_S,
    "tree_step_s": _NCCL_NET_TREE_STEP_S,
    "peer_s": 1.0e-6,
}
# 376 us for 1 MiB over 4 x P6-B200 (ml-engineering, network): four network hops of a tree, or eight of a ring.
_EFA = {
    **_NET,
    "nominal_latency_s": 15.5e-6,
    "ring_step_s": _us(20.0, 25.0, 35.0),
    "tree_step_s": _us(70.0, 75.0, 80.0),
}
_MESH = {
    "nominal_latency_s": 0.6e-6,
    "fraction": (0.3, 0.7, 1.0),
    "base_s": _NCCL_BASE_S,
    "ring_step_s": _NCCL_NVLINK_STEP_S,
    "mesh": True,
}
_PCIE = {
    "nominal_latency_s": 1e-6,
    "fraction": (0.4, 0.9, 1.0),
    "base_s": _us(4.0, 6.0, 10.0),
    "ring_step_s": _us(1.2, 2.0, 6.0),
    "peer_s": 0.5e-6,
}

_ROWS = (
    LinkConstants(
        key="nvswitch3",
        source="A100 x 8, 300 GB/s: aiconfigurator, Azure and vTrain nccl-tests",
        architectures=("Ampere",),
        **_NVSWITCH,
    ),
    LinkConstants(
        key="nvswitch4",
        source="H100 and H200 x 8, 450 GB/s: aiconfigurator and Azure nccl-tests",
        architectures=("Hopper",),
        in_switch_efficiency=1.07,
        in_switch_base_s=75e-6,
        **_NVSWITCH,
    ),
    LinkConstants(
        key="nvswitch5",
        source="B200, B300, GB200, GB300, 900 GB/s: aiconfigurator nccl-tests",
        architectures=("Blackwell",),
        # 846 GB/s at 16 GiB on 8 x B200 (ml-engineering, network); the sweep stops at 512 MiB, too short to see it.
        in_switch_efficiency=0.93,
        in_switch_base_s=140e-6,
        **_NVSWITCH,
    ),
    LinkConstants(
        key="nvlink-mesh2",
        source="V100 cube mesh, 25 GB/s links: vTrain nccl-tests with 2 and 8 ranks; latencies of NCCL tuning.cc",
        architectures=("Volta",),
        efficiency=_efficiency(0.88, 0.70, 0.85),
        **_MESH,
    ),
    LinkConstants(
        key="nvlink-mesh3",
        source="A100 x 4, four 25 GB/s links a pair: estimate-train-time (Perlmutter); latencies of NCCL tuning.cc",
        architectures=("Ampere",),
        efficiency=_efficiency(0.72, 0.70, 0.91),
        **_MESH,
    ),
    LinkConstants(
        key="xgmi3",
        source="MI300X: 47.7 GB/s with 2, 313 with 8 (ml-engineering, network); latencies of NCCL tuning.cc",
        architectures=("CDNA3",),
        efficiency=_efficiency(0.72, 0.65, 0.72),
        **_MESH,
    ),
    LinkConstants(
        key="xgmi2",
        source="MI250X: one all-gather of 8 dies in LUMI training logs (86 GB/s); latencies of NCCL tuning.cc",
        architectures=("CDNA2",),
        efficiency=_efficiency(0.29, 0.27, 0.70),
        **_MESH,
    ),
    LinkConstants(
        key="pcie4",
        source="A100 PCIe: SimuMax fits of nccl-tests (0.70, 0.69 of 30 GB/s with 2, 4; with 8, over 24 GB/s between "
        "sockets: 0.42, 0.45, 0.37 of 30, all-to-all 0.28); latencies as pcie5",
        architectures=("Ampere",),
        efficiency=_efficiency(0.65, 0.60, 0.50),
        between_sockets={"all_reduce": 0.522, "all_gather": 0.562, "reduce_scatter": 0.461, "all_to_all": 0.787},
        **_PCIE,
    ),
    LinkConstants(
        key="pcie4-staged",
        source="L40S without peer-to-peer: aiconfigurator nccl-tests; between sockets its 8 ranks from 16 MiB on",
        architectures=("Ada",),
        between_sockets={"all_reduce": 0.06, "all_gather": 0.049, "reduce_scatter": 0.068, "all_to_all": 0.15},
        efficiency=_efficiency(0.83, 0.80, 0.70),
        crowding=0.9,
        own_share=0.1,
        staged=True,
        **_PCIE,
    ),
    # Not fitted to a sweep: rate of a socket as on L40S, shared by its devices whether two or four of them exchange,
    # and half a millisecond before long messages flow, as the runs of amp with tp 2 and 4 have it.
    LinkConstants(
        key="pcie3-staged",
        source="T4 x 4, 12 GB/s a socket as L40S; start: runs of amp with tp 2 and 4; rest as pcie4-staged",
        architectures=("Turing",),
        nominal_latency_s=1e-6,
        efficiency=_efficiency(1.0, 1.0, 0.70),
        fraction=(0.17, 0.25, 1.0),
        base_s=_us(4.4, 6.0, 450.0),
        ring_step_s=_us(1.2, 2.0, 6.0),
        peer_s=1.4e-6,
        staged=True,
    ),
    LinkConstants(
        key="pcie5",
        source="RTX PRO 6000 x 8: aiconfigurator nccl-tests",
        architectures=("Blackwell",),
        efficiency=_efficiency(0.60, 0.45, 0.50),
        crowding=0.35,
        own_share=0.2,
        **_PCIE,
    ),
    LinkConstants(
        key="infiniband",
        source="1 GPU and 1 NDR400 port a node: estimate-train-time (Vista); latencies of NCCL tuning.cc",
        architectures=(),
        efficiency=_efficiency(0.93, 0.80, 0.80),
        **_NET,
    ),
    LinkConstants(
        key="efa",
        source="H100 x 8 with 32 x 100 Gbit/s: 1,765 probes of jobs (nanotron ultra-scale sweep); steps as efa-400",
        architectures=("Hopper",),
        efficiency=_efficiency(0.75, 0.60, 0.60),
        **_EFA,
    ),
    LinkConstants(
        key="efa-400",
        source="B200 x 8 with 8 x 400 Gbit/s, 4 nodes: 382 GB/s at 16 GiB, 5.4 at 1 MiB (ml-engineering, network)",
        architectures=("Blackwell",),
        efficiency=_efficiency(0.96, 0.80, 0.80),
        **_EFA,
    ),
    LinkConstants(
        key="slingshot",
        source="8 dies on 4 Slingshot ports: LUMI training logs, 16 to 256 nodes; latencies of NCCL tuning.cc",
        architectures=(),
        efficiency=_efficiency(0.39, 0.39, 0.51),
        **_NET,
    ),
    LinkConstants(
        key="omnipath",
        source="V100 x 4, 4 x 100 Gbit/s: BigScience all_reduce_bench, 10.6 GB/s on 4 nodes; NCCL latencies",
        architectures=("Volta",),
        efficiency=_efficiency(0.21, 0.20, 0.40),
        **_NET,
    ),
    LinkConstants(
        key="omnipath-a100",
        source="A100 x 8, 4 x 100 Gbit/s: BigScience all_reduce_bench, 5.1 GB/s on 4 nodes for one communicator; half "
        "as much again for several at once (Lucie, tp 2; BigScience, tp 4 and 8); NCCL latencies",
        architectures=("Ampere",),
        efficiency=_efficiency(0.15, 0.15, 0.40),
        alone_share=0.1,
        **_NET,
    ),
    LinkConstants(
        key="ethernet",
        source="assumption: 0.8 of the line rate, a hop as the catalogue's TCP latency",
        architectures=(),
        efficiency=_efficiency(0.80, 0.70, 0.80),
        **{
            **_NET,
            "ring_step_s": _us(30.0, 35.0, 50.0),
            "tree_step_s": _us(30.0, 35.0, 50.0),
            "nominal_latency_s": 30e-6,
        },
    ),
)

START = Table(
    links={row.key: row for row in _ROWS},
    kinds={
        "nvswitch": ("nvswitch3", "nvswitch4", "nvswitch5"),
        "nvlink-mesh": ("nvlink-mesh2", "nvlink-mesh3"),
        "xgmi-mesh": ("xgmi3", "xgmi2"),
        "roce-mesh": ("xgmi3",),
        "torus": ("xgmi3",),
        "pcie": ("pcie4", "pcie4-staged", "pcie3-staged", "pcie5"),
        "infiniband": ("infiniband",),
        "roce": ("infiniband",),
        "efa": ("efa", "efa-400"),
        "slingshot": ("slingshot",),
        "omnipath": ("omnipath", "omnipath-a100"),
        "ethernet": ("ethernet",),
    },
    borrowed={
        "roce-mesh": "no sweep over on-chip RoCE; another full mesh stands in",
        "torus": "no sweep over a torus; a mesh stands in",
        "roce": "no sweep over RoCE; InfiniBand stands in",
        "ethernet": "no sweep over kernel TCP",
    },
)

JOBS = (
    Job(key="nvswitch3", settings=("a100",), free=SWEEP),
    Job(key="nvswitch4", settings=("h100",), free=(*SWEEP, "in_switch_efficiency", "in_switch_base_s")),
    Job(key="nvswitch5", settings=("b200", "gb200"), free=(*SWEEP, "in_switch_base_s")),
    Job(key="pcie5", settings=("rtx-pro",), free=(*SWEEP, "crowding")),
    Job(key="pcie4-staged", settings=("l40s",), free=(*SWEEP, "crowding")),
    Job(key="nvlink-mesh2", settings=("v100",), free=("efficiency:all_reduce",)),
    Job(key="nvlink-mesh3", settings=("perlmutter",), free=("efficiency:all_reduce", "efficiency:send_recv")),
    Job(key="infiniband", settings=("vista",), free=("efficiency:all_reduce", "efficiency:send_recv")),
    Job(
        key="slingshot",
        settings=("lumi",),
        free=("efficiency:all_reduce", "efficiency:all_gather", "efficiency:send_recv"),
    ),
    Job(key="efa", settings=("efa",), free=tuple(f"efficiency:{name}" for name in COLLECTIVES[:3])),
)
