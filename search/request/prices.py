"""Price of a device: a number, or the least price of a cloud in the local SkyPilot catalogue.

Source: ``sky/catalog/common.py`` of SkyPilot 0.14: a table ``.sky/catalogs/vN/CLOUD/vms.csv`` in the home folder, or in
``SKY_RUNTIME_DIR``, with the price of an instance for one hour. Nothing is downloaded.
"""

import csv
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from forerun.spaces.clusters import Cluster
from forerun.spaces.errors import RequestError

ACCELERATORS: Mapping[str, str] = {
    "a100-sxm4-40": "A100",
    "a100-pcie-40": "A100",
    "a100-sxm4-80": "A100-80GB",
    "a100-pcie-80": "A100-80GB",
    "a10g": "A10G",
    "b200-sxm": "B200",
    "b300-sxm": "B300",
    "gb200-nvl72": "GB200",
    "gh200-96": "GH200",
    "h100-sxm": "H100",
    "h200-sxm": "H200",
    "k80": "K80",
    "l4": "L4",
    "l40s": "L40S",
    "mi300x": "MI300X",
    "p100-sxm2": "P100",
    "rtx3090": "RTX3090",
    "rtx4090": "RTX4090",
    "rtx-a6000": "RTXA6000",
    "t4": "T4",
    "v100-sxm2-16": "V100",
    "v100-sxm2-32": "V100-32GB",
}
"""SkyPilot's names of accelerators by device of the catalogue."""
CATALOGUE = re.compile(r"sky:([a-z][a-z0-9_-]*)")
_COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region")


def usd_per_device_hour(source: float | str, cluster: Cluster) -> tuple[float, str]:
    """Find the price of one device of a cluster for one hour.

    Parameters
    ----------
    source
        The price, or ``sky:CLOUD``.
    cluster
        Cluster of the device; for groups of nodes the price is the mean over devices.

    Returns
    -------
    tuple
        The price in USD, and a sentence on its origin ("" for a number).

    Raises
    ------
    RequestError
        There is no catalogue on this machine, or has no price of the device.
    """
    if not isinstance(source, str):
        return source, ""
    if (named := CATALOGUE.fullmatch(source)) is None:
        raise RequestError(f"usd_per_gpu_hour is a number or sky:CLOUD, as in sky:aws, but got {source[:60]!r}")
    table = _table(named[1])
    parts = [(group.devices, group.cluster) for group in cluster.groups] or [(1, cluster)]
    prices = [_least(table, named[1], part) for _, part in parts]
    mean = sum(count * price for (count, _), (price, _) in zip(parts, prices, strict=True))
    mean /= sum(count for count, _ in parts)
    where = " and ".join(dict.fromkeys(where for _, where in prices))
    written = time.strftime("%Y-%m-%d", time.gmtime(table.stat().st_mtime))
    return mean, f"price {mean:.4g} USD per GPU-hour ({where}, SkyPilot's catalogue of {named[1]}, {written})"


def _table(cloud: str) -> Path:
    """Return the table of a cloud, from the newest version of the catalogue on this machine."""
    folder = os.environ.get("SKY_RUNTIME_DIR") or os.path.expanduser("~")
    root = Path(folder, ".sky", "catalogs")
    tables = sorted(root.glob(f"v*/{cloud}/vms.csv"), key=lambda path: int(path.parts[-3][1:].zfill(1)))
    if not tables:
        raise RequestError(
            f"SkyPilot's catalogue of {cloud} is not on this machine ({root}): `sky gpus list --cloud {cloud}` "
            "downloads it; or give the price as a number"
        )
    return tables[-1]


def _least(table: Path, cloud: str, cluster: Cluster) -> tuple[float, str]:
    """Return the least price of a device, preferably in nodes of the cluster's size."""
    name = ACCELERATORS.get(cluster.device.name)
    if name is None:
        raise RequestError(f"SkyPilot has no accelerator for {cluster.device.name}; give the price as a number")
    offers = [
        (number, price, where)
        for accelerator, number, price, where in _offers(table)
        if accelerator.lower() == name.lower()
    ]
    if not offers:
        raise RequestError(
            f"{cloud} has no price of {name} in SkyPilot's catalogue ({table}); give the price as a number"
        )
    same_size = [offer for offer in offers if offer[0] == cluster.devices_per_node]
    _, price, where = min(same_size or offers, key=lambda offer: offer[1])
    return price, where


def _offers(table: Path) -> Iterator[tuple[str, float, float, str]]:
    """Iterate over accelerators, their number in a node, the price of each and a description of the offer."""
    try:
        with table.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                instance, accelerator, number, price, region = (row.get(name) or "" for name in _COLUMNS)
                if re.fullmatch(r"\d+(\.\d+)?", price) and re.fullmatch(r"[1-9]\d{0,3}(\.0)?", number):
                    yield accelerator, float(number), float(price) / float(number), f"{instance} in {region}"
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RequestError(f"{table} cannot be read: {type(error).__name__}") from None
