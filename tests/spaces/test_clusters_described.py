"""Clusters and devices in documents of a user's own: whose constants they have, and what may not be meant."""

from pathlib import Path

import pytest
import yaml

from forerun.search import simulate
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.clusters import load_device, resolve_cluster
from forerun.spaces.clusters.device import read_entry
from forerun.spaces.errors import RequestError

ASKED = {"model": "llama2-7b", "global_batch": 64, "seq_len": 512, "gpus": "32"}


def document(tmp_path: Path, **keys: object) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"devices_per_node": 8, "max_devices": 64, **keys}))
    return str(path)


def described(name: str, like: str, **keys: object) -> dict[str, object]:
    return {**read_entry("devices", like, "device"), "name": name, **keys}


@pytest.mark.parametrize("like", ["a100-pcie-80", "v100-sxm2-32", "h200-sxm", "rtx-pro-6000", "mi300x"])
def test_a_device_under_another_name_costs_what_the_catalogued_one_does(like: str, tmp_path: Path) -> None:
    network = {"kind": "infiniband", "nics_per_node": 8, "nic_rate": "200Gb/s"}
    found = []
    for number, device in enumerate((like, described("mine", like), {"name": "mine", "like": like})):
        (folder := tmp_path / str(number)).mkdir()
        row = simulate(
            "llama2-7b",
            cluster=document(folder, device=device, network=network),
            global_batch=64,
            seq_len=512,
            precision="fp16",
            framework="generic",
            strategy="tp1 pp1 dp32 mbs1 zero1 recompute=full",
        )
        found.append((row.step_time_s, row.peak_memory_gib))
    assert found[0] == found[1] == found[2]


def test_whose_constants_a_device_has_is_said(tmp_path: Path) -> None:
    network = {"kind": "infiniband", "nics_per_node": 8, "nic_rate": "200Gb/s"}
    for device, words in (
        (described("mine", "a100-pcie-80"), "constants of mine: those of a100-pcie-80"),
        ({"name": "mine", "like": "h100-sxm", "memory": "90GiB"}, "constants of mine: those of h100-sxm"),
        (described("mine", "a100-pcie-80", compute_units=100), "constants of mine: uncalibrated: borrowed from"),
    ):
        request = Request(**ASKED, cluster=document(tmp_path, device=device, network=network))
        assert any(text.startswith(words) for text in resolve(request).defaults), words
    named = Request(**ASKED, cluster=document(tmp_path, device="a100-pcie-80", network=network))
    assert not any("constants of" in text for text in resolve(named).defaults)


def test_a_device_that_is_like_another_has_its_other_figures(tmp_path: Path) -> None:
    found = resolve_cluster(
        document(tmp_path, device={"name": "mine", "like": "h100-sxm", "memory": "90GiB"}, max_devices=8)
    )
    usual = load_device("h100-sxm")
    assert found.device.memory_bytes == 90 * 2**30
    assert (found.device.peak_flops_per_s, found.device.vendor) == (usual.peak_flops_per_s, usual.vendor)
    with pytest.raises(RequestError, match="h100-sxm"):
        resolve_cluster(document(tmp_path, device={"name": "mine", "like": "h100-smx"}, max_devices=8))


@pytest.mark.parametrize(
    ("network", "warned"),
    [
        ({"kind": "ethernet", "nic_rate": "400Gb/s"}, True),
        ({"kind": "ethernet", "nic_rate": "400Gb/s", "copied_rate": "20GB/s"}, False),
        ({"kind": "ethernet", "nic_rate": "10Gb/s"}, False),
        ({"kind": "roce", "nic_rate": "400Gb/s"}, False),
    ],
)
def test_sockets_of_the_kernel_are_named_where_rdma_may_be_meant(
    network: dict[str, str], warned: bool, tmp_path: Path
) -> None:
    cluster = document(tmp_path, device="h100-sxm", network={**network, "nics_per_node": 8})
    warnings = resolve(Request(**ASKED, cluster=cluster)).warnings
    assert [("kind: roce" in text and "2.5 GB/s" in text) for text in warnings] == ([True] if warned else [])
    assert not resolve(Request(**{**ASKED, "gpus": "16"}, cluster="aws-g4dn", precision="fp16")).warnings


@pytest.mark.parametrize(
    ("device", "per_node", "nics", "rate"),
    [("a100-sxm4-80", 4, 1, 25e9), ("v100-sxm2-32", 8, 2, 12.5e9), ("h100-sxm", 8, 8, 50e9), ("h100-sxm", 8, 16, 50e9)],
)
def test_a_port_is_as_wide_as_is_usual_for_the_device(
    device: str, per_node: int, nics: int, rate: float, tmp_path: Path
) -> None:
    network = {"kind": "infiniband", "nics_per_node": nics, "direct": nics == per_node, "copied_rate": "1TB/s"}
    path = document(tmp_path, device=device, devices_per_node=per_node, network=network)
    assert resolve_cluster(path).levels[-1].port_bytes_per_s <= rate
    assert resolve_cluster(path).spec.network.nic_bytes_per_s == pytest.approx(rate)


def matrix(relation: str, product: str, devices: int = 4, nics: int = 0) -> str:
    labels = [f"GPU{number}" for number in range(devices)] + [f"NIC{number}" for number in range(nics)]
    lines = [f"GPU {number}: {product} (UUID: GPU-{number})" for number in range(devices)]
    lines += ["\t" + "\t".join([*labels, "CPU Affinity"])]
    for one in labels:
        cells = ["X" if one == other else relation if one[:3] == other[:3] == "GPU" else "PIX" for other in labels]
        lines.append("\t".join([one, *cells, "0-31"]))
    return "\n".join(lines)


@pytest.mark.parametrize("relation", ["PIX", "NODE"])
def test_devices_without_peer_copies_go_through_the_host_whatever_switch_they_share(
    relation: str, tmp_path: Path
) -> None:
    path = tmp_path / "node.txt"
    path.write_text(matrix(relation, "NVIDIA GeForce RTX 4090"))
    (level,) = resolve_cluster(str(path)).levels
    assert level.staged and level.bytes_per_s == pytest.approx(24e9 / 4)


def test_a_tray_of_a_rack_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "node.txt"
    path.write_text(matrix("NV18", "NVIDIA GB200", nics=4))
    (text,) = resolve_cluster(str(path)).cautions
    assert "gb200-nvl72" in text and "scale_up: {size: 72}" in text
    (tmp_path / "mine.yaml").write_text("topology: node.txt\nscale_up: {size: 72}\n")
    whole = resolve_cluster(str(tmp_path / "mine.yaml"))
    assert whole.scale_up_size == 72 and not whole.cautions
