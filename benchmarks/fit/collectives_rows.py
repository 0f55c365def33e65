"""Published measurements of collectives as one frame, and the levels they were taken on.

Columns of the frame: source, setting, device, collective, ranks, stride, full_bytes, seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from forerun.spaces.clusters.cluster import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The levels of a benchmark and whether its groups worked alone."""

    levels: tuple[Level, ...]
    lone: bool = False


def _level(
    kind: str, size: int, rate: float, port: float, *, latency_s: float = 1e-6, in_switch: bool = False
) -> Level:
    return Level(
        name=kind,
        size=size,
        kind=kind,
        bytes_per_s=rate * 1e9,
        port_bytes_per_s=port * 1e9,
        latency_s=latency_s,
        in_switch=in_switch,
    )


_SELF = _level("nvswitch", 1, 450, 450)

LEVELS: Mapping[str, Setting] = {
    "a100": Setting(levels=(_level("nvswitch", 8, 300, 300),)),
    "h100": Setting(levels=(_level("nvswitch", 8, 450, 450, in_switch=True),)),
    "b200": Setting(levels=(_level("nvswitch", 8, 900, 900, in_switch=True),)),
    "gb200": Setting(levels=(_level("nvswitch", 4, 900, 900, in_switch=True),)),
    "rtx-pro": Setting(levels=(_level("pcie", 8, 64, 64),)),
    "l40s": Setting(levels=(_level("pcie-host", 8, 32, 32),)),
    "v100": Setting(levels=(_level("nvlink-mesh", 8, 150, 25),)),
    "perlmutter": Setting(levels=(_level("nvlink-mesh", 4, 300, 100),)),
    "vista": Setting(levels=(_SELF, _level("infiniband", 1024, 50, 50, latency_s=3e-6)), lone=True),
    "lumi": Setting(levels=(_level("xgmi-mesh", 8, 175, 50), _level("slingshot", 4096, 12.5, 25, latency_s=3e-6))),
    "efa": Setting(
        levels=(
            _level("nvswitch", 8, 450, 450, in_switch=True),
            _level("efa", 4096, 50, 50, latency_s=1e-5),
        )
    ),
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
_COLUMNS = ["source", "setting", "device", "collective", "ranks", "stride", "full_bytes", "seconds"]


def read_rows(folder: Path) -> pd.DataFrame:
    """All usable rows; what is left out and why stands beside each reader."""
    parts = [_aiconfigurator(folder), _nccl(folder), _estimate_train_time(folder), _lumi(folder)]
    return pd.concat([part[_COLUMNS] for part in parts], ignore_index=True)


def _aiconfigurator(folder: Path) -> pd.DataFrame:
    frame = pd.read_csv(folder / "collective_aiconfigurator.csv")
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
