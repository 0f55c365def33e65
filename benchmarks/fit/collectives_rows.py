"""Published measurements of collectives as one frame, and the levels they were taken on.

Columns of the frame: source, setting, device, collective, ranks, stride, full_bytes, seconds; ``bus`` (bus bandwidth in
GB/s) only where the size of the message is unknown and full_bytes and seconds are blank.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from forerun.spaces.clusters.catalogue import load_cluster
from forerun.spaces.clusters.cluster import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where rows were measured; ``lone``: one group at a time, as benchmarks of a part of a machine do."""

    levels: tuple[Level, ...]
    architecture: str
    lone: bool = True


def _setting(name: str, *, lone: bool = True, one_node: bool = False) -> Setting:
    cluster = load_cluster(name)
    levels = tuple(level for level in cluster.levels if not one_node or level.size <= cluster.devices_per_node)
    return Setting(levels=levels, architecture=cluster.device.architecture, lone=lone)


def _perlmutter() -> Setting:
    mesh = replace(
        load_cluster("jean-zay-v100").levels[0], size=4, bytes_per_s=300e9, port_bytes_per_s=100e9, name="node"
    )
    return Setting(levels=(mesh,), architecture="Ampere sm80")


def _vista() -> Setting:
    network = replace(load_cluster("gh200").levels[-1], bytes_per_s=50e9, port_bytes_per_s=50e9)
    return Setting(levels=(network,), architecture="Hopper sm90")


LEVELS: Mapping[str, Setting] = {
    "a100": _setting("dgx-a100-80", one_node=True),
    "h100": _setting("dgx-h100", one_node=True),
    "b200": _setting("dgx-b200", one_node=True),
    "gb200": _setting("gb200-nvl72", one_node=False),
    "rtx-pro": _setting("rtx-pro-6000-pcie", one_node=True),
    "l40s": _setting("l40s-pcie", one_node=True),
    "v100": _setting("dgx1-v100", one_node=True),
    "perlmutter": _perlmutter(),
    "vista": _vista(),
    "lumi": _setting("frontier-mi250x", lone=False),
    "efa": _setting("aws-p5"),
}

_AICONFIGURATOR = {
    "a100_sxm": "a100",
    "h100_sxm": "h100",
    "h200_sxm": "h100",
    "b200_sxm": "b200",
    "b300_sxm": "b200",
    "gb200": "gb200",
    "gb300": "gb200",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro",
}
_COLUMNS = ["source", "setting", "device", "collective", "ranks", "stride", "full_bytes", "seconds", "bus"]


def read_rows(folder: Path) -> pd.DataFrame:
    """All usable rows; what is left out and why stands beside each reader."""
    parts = [_aiconfigurator(folder), _nccl(folder), _estimate_train_time(folder), _lumi(folder), _ultrascale(folder)]
    return pd.concat([part.reindex(columns=_COLUMNS) for part in parts], ignore_index=True)


def _aiconfigurator(folder: Path) -> pd.DataFrame:
    # 8 L40S cross the sockets at 1.4 GB/s, a tenth of what any other PCIe machine does: left out.
    frame = pd.read_csv(folder / "collective_aiconfigurator.csv")
    frame = frame[(frame.system != "l40s") | (frame.gpus < 8)]
    version = frame.notes.str.extract(r"nccl/([\d.]+)/")[0]
    return frame.assign(
        source="aiconfigurator",
        setting=frame.system.map(_AICONFIGURATOR),
        device=frame.system + " nccl " + version,
        collective=frame.collective.replace({"alltoall": "all_to_all"}),
        ranks=frame.gpus,
        stride=1,
        full_bytes=frame.bytes,
        seconds=frame.latency_us * 1e-6,
    )


def _nccl(folder: Path) -> pd.DataFrame:
    # Only what names its ranks and sizes; V100 groups of 3, 5, 6, 7 use rings that a cube mesh cannot close.
    frame = pd.read_csv(folder / "collective_nccl.csv")
    frame = frame[frame.source.str.contains("vTrain|Azure")].astype({"ranks": int})
    setting = frame.hardware.str.extract("(A100|H100|H200|V100)")[0].replace({"H200": "H100"}).str.lower()
    source = frame.source.str.split(r"[ /:]", regex=True).str[0]
    frame = frame.assign(
        source=source.where(source == "vTrain", "azure"),
        setting=setting,
        device=frame.hardware,
        collective=frame.op,
        stride=1,
        full_bytes=pd.to_numeric(frame.size_bytes),
    )
    # Azure prints bus bandwidth only.
    factor = 2.0 * (frame.ranks - 1) / frame.ranks
    frame["seconds"] = frame.full_bytes * factor / (frame.busbw_GBps * 1e9)
    rounded = frame.busbw_GBps < 0.5
    return frame[~rounded & ((setting != "v100") | frame.ranks.isin([2, 8]))]


def _estimate_train_time(folder: Path) -> pd.DataFrame:
    # Perlmutter across nodes ran at 1.2 GB/s per device (sockets instead of the Slingshot plugin) and its in-node
    # all-gather scatters fivefold at one size: both left out.
    frame = pd.read_csv(folder / "collective_ett.csv")
    vista = frame.system == "Vista"
    usable = vista | ((frame.nodes == 1) & frame.collective.isin(["all_reduce", "send_recv"]))
    return frame.assign(
        source="estimate-train-time",
        setting=frame.system.str.lower(),
        device=frame.system,
        ranks=frame.gpus,
        stride=1,
        full_bytes=frame.bytes_total,
        seconds=frame.latency_us * 1e-6,
    )[usable]


def _lumi(folder: Path) -> pd.DataFrame:
    # Times of groups whose size follows from the strategy: data-parallel all-reduce (2.73 GB) and all-gather (bytes are
    # one rank's shard), embedding all-reduce of two stages (350 MB), neighbour send (14 MB); tp = 8 fills the node.
    frame = pd.read_csv(folder / "collective_lumi.csv")
    shard = frame.op.eq("all_gather") & (frame.bytes > 2e7)
    gradient = frame.op.eq("all_reduce") & frame.bytes.between(2.9e9, 3e9)
    embedding = frame.op.eq("all_reduce") & frame.bytes.between(3e8, 4e8)
    send = frame.op.eq("recv") & (frame.bytes > 1e7)
    frame = frame.assign(
        source="lumi",
        setting="lumi",
        device="mi250x",
        collective=frame.op.where(~send, "send_recv"),
        ranks=frame.dp.where(shard | gradient, 2),
        stride=8,
        full_bytes=frame.bytes * frame.dp.where(shard, 1),
        seconds=frame.median_ms * 1e-3,
    )
    return frame[shard | gradient | embedding | send]


def _ultrascale(folder: Path) -> pd.DataFrame:
    # Medians per node count of probes that jobs ran before training; the probe's size is not published, so
    # full_bytes is blank and the fit searches it. Two populations, told apart by the bandwidth inside a node: "early"
    # and "late" jobs. The all-reduce of late jobs takes longer than that of early ones, as if on a ring: left out.
    frame = pd.read_csv(folder / "collective_hf_ultrascale.csv")
    frame = frame[(frame.nodes > 1) & (frame.ar_intra_GBps > 380)]
    frame["device"] = "late"
    frame.loc[frame.ar_intra_GBps > 440, "device"] = "early"
    names = {"allreduce_GBps": "all_reduce", "allgather_GBps": "all_gather", "reducescatter_GBps": "reduce_scatter"}
    medians = frame.groupby(["device", "gpus"])[list(names)].median().rename(columns=names)
    long = medians.stack().rename("bus").reset_index().rename(columns={"level_2": "collective", "gpus": "ranks"})
    long = long[(long.device == "early") | (long.collective != "all_reduce")]
    return long.assign(source="hf_ultrascale", setting="efa", stride=1, full_bytes=float("nan"), seconds=float("nan"))
