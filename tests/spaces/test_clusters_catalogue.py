"""The catalogue of clusters, one's own documents, and clusters described in one call."""

import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from forerun.spaces.clusters import Cluster, cluster_names, load_cluster, load_device, resolve_cluster, simple_cluster
from forerun.spaces.clusters.schema import ClusterDocument
from forerun.spaces.documents import parse_document, validate
from forerun.spaces.errors import RequestError


@cache
def clusters() -> tuple[Cluster, ...]:
    return tuple(map(load_cluster, cluster_names()))


def test_levels_grow_outwards_to_the_whole_cluster() -> None:
    for cluster in clusters():
        sizes = [level.size for level in cluster.levels]
        assert sizes == sorted(set(sizes)), cluster.name
        assert sizes[-1] == cluster.max_devices, cluster.name
        assert all(outer % inner == 0 for inner, outer in pairwise(sizes)), cluster.name


def test_a_level_is_never_faster_than_the_one_inside_it() -> None:
    for cluster in clusters():
        # NICs on both sockets bypass the link between these, so a network may be faster than that.
        rates = [level.bytes_per_s for level in cluster.levels if (level.name, level.kind) != ("node", "pcie")]
        assert rates == sorted(rates, reverse=True), cluster.name
        assert all(level.latency_s > 0 and level.port_bytes_per_s > 0 for level in cluster.levels), cluster.name


def test_every_entry_names_its_source_and_its_defaults() -> None:
    for cluster in clusters():
        assert len(cluster.source) > 20, cluster.name
        assert any("latency" in text for text in cluster.defaults), cluster.name
        assert all(": " in text and text.endswith(")") for text in cluster.defaults), cluster.name


def test_catalogue_files_obey_the_schema_of_ones_own_documents() -> None:
    for cluster in clusters():
        folder = Path(sys.modules["forerun.spaces.clusters"].__file__ or "").parent / "data" / "clusters"
        path = folder / f"{cluster.name}.yaml"
        text = path.read_text(encoding="utf-8")
        validate(parse_document(text, source=path.name), ClusterDocument)
        assert resolve_cluster(str(path)) == cluster, cluster.name


# Published: devices, scale-up domain, NIC line rate per device in Gb/s.
@pytest.mark.parametrize(
    ("name", "device", "scale_up", "gbit_per_device"),
    [
        ("dgx-a100-80", "a100-sxm4-80", 8, 200),
        ("dgx-h100", "h100-sxm", 8, 400),
        ("hgx-h200", "h200-sxm", 8, 400),
        ("dgx-b200", "b200-sxm", 8, 400),
        ("gb200-nvl72", "gb200-nvl72", 72, 400),
        ("dgx1-v100", "v100-sxm2-32", 8, 50),
        ("dgx2-v100", "v100-sxm2-32", 16, 50),
        ("mi300x-platform", "mi300x", 8, 400),
        ("aws-p4d", "a100-sxm4-40", 8, 50),
        ("aws-p5", "h100-sxm", 8, 400),
        ("aws-p3dn", "v100-sxm2-32", 8, 12.5),
        ("gcp-a3-mega", "h100-sxm", 8, 200),
        ("azure-ndv5", "h100-sxm", 8, 400),
        ("gh200", "gh200-96", 1, 200),
        ("l40s-pcie", "l40s", 4, 25),
    ],
)
def test_published_layouts(name: str, device: str, scale_up: int, gbit_per_device: float) -> None:
    cluster = load_cluster(name)
    assert cluster.device.name == device
    assert cluster.scale_up_size == scale_up
    assert cluster.levels[-1].bytes_per_s == pytest.approx(gbit_per_device * 1e9 / 8)


def test_a_mesh_gives_a_pair_one_link_and_all_of_them_together_everything() -> None:
    mesh = load_cluster("mi300x-platform").levels[0]
    assert (mesh.kind, mesh.port_bytes_per_s, mesh.bytes_per_s) == ("xgmi-mesh", 64e9, 448e9)
    cube = load_cluster("dgx1-v100").levels[0]
    assert (cube.kind, cube.port_bytes_per_s, cube.bytes_per_s) == ("nvlink-mesh", 25e9, 150e9)
    pascal = load_cluster("dgx1-p100").levels[0]
    assert (pascal.port_bytes_per_s, pascal.bytes_per_s) == (20e9, 80e9)


def test_several_cards_of_a_device_work_as_one() -> None:
    level = load_cluster("aws-p5").levels[-1]
    assert level.port_bytes_per_s == level.bytes_per_s == 50e9


def test_switches_that_reduce_are_those_of_hopper_and_blackwell() -> None:
    reducing = {name for name in cluster_names() if load_cluster(name).levels[0].in_switch}
    assert {"dgx-h100", "dgx-b200", "gb200-nvl72"} <= reducing
    assert not reducing & {"dgx-a100-80", "dgx2-v100", "mi300x-platform", "h100-pcie"}


def test_an_oversubscribed_spine_is_a_level_of_its_own() -> None:
    *_, leaf, spine = load_cluster("abci-v100").levels
    assert (leaf.size, spine.size) == (17 * 4, 4352)
    assert spine.bytes_per_s == pytest.approx(leaf.bytes_per_s / 3)
    assert spine.oversubscription == 3
    assert spine.latency_s > leaf.latency_s


OWN = """\
title: Our machines
device: h100-sxm
devices_per_node: 8
max_devices: 256
scale_up: {kind: nvswitch, rate: 450GB/s, in_switch: false}
network:
  kind: roce
  nics_per_node: 4
  nic_rate: 200Gb/s
  leaf_nodes: 8
  oversubscription: 2
usd_per_device_hour: 2.5
"""


def write(folder: Path, text: str) -> str:
    path = folder / "ours.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_cluster_of_ones_own_in_a_dozen_lines(tmp_path: Path) -> None:
    cluster = resolve_cluster(write(tmp_path, OWN))
    assert (cluster.name, cluster.title, cluster.usd_per_device_hour) == ("ours", "Our machines", 2.5)
    assert [(level.size, level.bytes_per_s) for level in cluster.levels] == [(8, 450e9), (64, 12.5e9), (256, 6.25e9)]
    assert not cluster.levels[0].in_switch
    assert not any("in_switch" in text for text in cluster.defaults)


def test_three_lines_are_enough_and_everything_filled_in_is_listed(tmp_path: Path) -> None:
    cluster = resolve_cluster(write(tmp_path, "device: h100-sxm\ndevices_per_node: 8\nnetwork: {}\n"))
    keys = {text.partition(":")[0] for text in cluster.defaults}
    assert keys == {
        *("scale_up.kind", "scale_up.in_switch", "scale_up.latency", "network.kind", "network.nic_rate"),
        *("network.nics_per_node", "network.latency", "max_devices"),
    }
    assert cluster.levels == load_cluster("dgx-h100").levels


def test_one_machine_needs_no_network(tmp_path: Path) -> None:
    cluster = resolve_cluster(write(tmp_path, "device: h100-sxm\ndevices_per_node: 4\n"))
    assert cluster.max_devices == 4
    assert [level.size for level in cluster.levels] == [4]
    alone = resolve_cluster(write(tmp_path, "device: t4\ndevices_per_node: 1\n"))
    assert (alone.levels, alone.scale_up_size) == ((), 1)


def test_a_device_of_ones_own(tmp_path: Path) -> None:
    text = """
device:
  name: x1
  memory: 64GiB
  memory_rate: 2TB/s
  peak: {bf16: 500TFLOP/s}
  compute_units: 100
  matmul_ceiling: {bf16: 0.8}
  memory_efficiency: 0.8
  host_rate: 64GB/s
  link: {kind: nvlink, rate: 400GB/s}
devices_per_node: 8
"""
    cluster = resolve_cluster(write(tmp_path, text))
    assert (cluster.device.name, cluster.levels[0].bytes_per_s) == ("x1", 400e9)
    with pytest.raises(RequestError, match=r"line 3, device\.nme: unknown key; did you mean name"):
        resolve_cluster(write(tmp_path, text.replace("name:", "nme:")))


def test_overlap_may_be_given_as_factors_or_as_multiprocessors(tmp_path: Path) -> None:
    plain, factors, units = (
        resolve_cluster(write(tmp_path, OWN + text)).overlap
        for text in ("", "overlap: {computation: 1.1, communication: 1.2}", "overlap: {collective_units: 33}")
    )
    assert (plain.computation, plain.communication) == (1.0, 1.0)
    assert (factors.computation, factors.communication) == (1.1, 1.2)
    # 33 of the 132 multiprocessors of an H100 leave three quarters.
    assert (units.computation, units.communication) == (pytest.approx(4 / 3), 1.0)


def test_links_of_a_device_can_be_left_unused(tmp_path: Path) -> None:
    text = "device: h100-sxm\ndevices_per_node: 8\nscale_up: none\n"
    assert [level.kind for level in resolve_cluster(write(tmp_path, text)).levels] == ["pcie", "pcie"]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("device: h100-sxm", "device: h100"), "ours.yaml, line 2, device: unknown device 'h100'; did you mean h100-"),
        (("devices_per_node", "device_per_node"), "device_per_node: unknown key; did you mean devices_per_node?"),
        (
            ("devices_per_node: 8", "devices_per_node: -8"),
            "line 3, devices_per_node: this must be at least 1, but got -8",
        ),
        (("devices_per_node: 8", "devices_per_node: 8.0"), "this must be a whole number, but got 8.0"),
        (("nic_rate: 200Gb/s", "nic_rate: 200"), "line 9, network.nic_rate: write the unit too, as in 400Gb/s"),
        (("nic_rate: 200Gb/s", "nic_rate: 200GiB"), "'GiB' is not a unit of a rate"),
        (("nic_rate: 200Gb/s", "nic_rate: 0Gb/s"), "this must be above 0"),
        (("max_devices: 256", "max_devices: 250"), "multiple of devices_per_node, but got 250 and 8; use 248"),
        (("leaf_nodes: 8", "leaf_node: 8"), "network.leaf_node: unknown key; did you mean leaf_nodes?"),
        (("  leaf_nodes: 8\n", ""), "an oversubscribed network needs leaf_nodes"),
        (("kind: roce", "kind: rocky"), "line 7, network.kind: this must be 'infiniband', 'roce'"),
        (("oversubscription: 2", "oversubscription: 0.5"), "this must be at least 1, but got 0.5"),
        (("kind: nvswitch,", "kind: nvswitch, size: 3,"), "divides or is a multiple of the 8 devices"),
        (("usd_per_device_hour: 2.5", "usd_per_device_hour: -1"), "this must be at least 1e-09, but got -1"),
        (
            ("usd_per_device_hour: 2.5", "overlap: {communication: 0.9}"),
            "line 12, overlap.communication: this must be at least 1, but got 0.9",
        ),
        (("usd_per_device_hour: 2.5", "overlap: {collective_units: 132}"), "collectives occupy 132; use at most 131"),
        (("usd_per_device_hour: 2.5", "overlap: {comunication: 2}"), "unknown key; did you mean communication?"),
        (
            ("usd_per_device_hour: 2.5", "overlap: {collective_units: 8, computation: 2}"),
            "line 12, overlap: collective_units say how much slower computation is; give either them or computation",
        ),
        (("device: h100-sxm", "device: [h100-sxm]"), "this must be a mapping of keys"),
    ],
)
def test_mistakes_in_ones_own_document(tmp_path: Path, change: tuple[str, str], part: str) -> None:
    assert change[0] in OWN
    with pytest.raises(RequestError) as caught:
        resolve_cluster(write(tmp_path, OWN.replace(*change)))
    assert part in str(caught.value)
    assert "ours.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("device", "per_node", "words", "gbit", "levels"),
    [
        ("h100-sxm", 8, "NVLink4+NVSwitch", 3200, [(8, "nvswitch", 450), (16384, "infiniband", 50)]),
        ("a100-sxm4-80", 8, "NVLink3", 400, [(8, "nvswitch", 300), (16384, "infiniband", 6.25)]),
        ("v100-sxm2-16", 8, "NVLink2 hybrid cube mesh", 100, [(8, "nvlink-mesh", 150), (16384, "infiniband", 1)]),
        ("v100-sxm2-16", 4, "NVLink", 10, [(4, "nvlink-mesh", 150), (16384, "infiniband", 0.3125)]),
        ("t4", 4, "PCIe", 50, [(4, "pcie", 3), (16384, "infiniband", 1.5625)]),
        ("gb200-nvl72", 4, "NVLink5 NVL72", None, [(72, "nvswitch", 900), (16344, "infiniband", 50)]),
        ("v100-sxm2-32", 1, None, None, [(16384, "infiniband", 12.5)]),
        ("p40", 8, "PCIe 3.0", None, [(4, "pcie", 16), (8, "pcie", 6), (16384, "infiniband", 1.5625)]),
    ],
)
def test_clusters_of_published_runs(
    device: str, per_node: int, words: str | None, gbit: float | None, levels: list[tuple[int, str, float]]
) -> None:
    cluster = simple_cluster(
        load_device(device),
        per_node,
        intra_link=words,
        nic_bytes_per_s_per_node=None if gbit is None else gbit * 1e9 / 8,
    )
    assert [(level.size, level.kind, level.bytes_per_s / 1e9) for level in cluster.levels] == [
        (size, kind, pytest.approx(rate)) for size, kind, rate in levels
    ]
    assert any("network.nic_rate" in text for text in cluster.defaults) == (gbit is None)


def test_a_catalogue_name_needs_neither_networkx_nor_pydantic_nor_numpy() -> None:
    code = (
        "import sys; from forerun.spaces.clusters import load_cluster, levels_from_spec; load_cluster('dgx-h100'); "
        "sys.exit(any(name in sys.modules for name in ('networkx', 'pydantic', 'numpy', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_devices_without_peer_access_copy_through_their_host(tmp_path: Path) -> None:
    """A socket copies 0.75 of one device's link for all of its devices."""
    text = "device: t4\ndevices_per_node: 4\n"
    cluster = resolve_cluster(write(tmp_path, text))
    assert cluster.levels[0].staged
    assert cluster.levels[0].bytes_per_s == pytest.approx(0.75 * 16e9 / 4)
    assert any(line.startswith("host.staged_rate: 12 GB/s") for line in cluster.defaults)
    stated = resolve_cluster(write(tmp_path, text + "host: {staged_rate: 8GB/s}\n"))
    assert stated.levels[0].bytes_per_s == pytest.approx(2e9)
    direct = resolve_cluster(write(tmp_path, text.replace("t4", "p40")))
    assert (direct.levels[0].staged, direct.levels[0].bytes_per_s) == (False, 16e9)


@pytest.mark.parametrize(("nics", "node_gbyte"), [(1, 8), (2, 16), (4, 50)])
def test_a_nic_far_from_most_devices_moves_what_the_host_copies(tmp_path: Path, nics: int, node_gbyte: float) -> None:
    """Half of a device's link to the host (PCIe 3: 16 GB/s), where more than two devices share the NIC."""
    text = "device: v100-sxm2-16\ndevices_per_node: 8\n"
    network = f"network: {{kind: infiniband, nics_per_node: {nics}, nic_rate: 100Gb/s}}\n"
    cluster = resolve_cluster(write(tmp_path, text + network))
    assert cluster.levels[-1].bytes_per_s == pytest.approx(node_gbyte * 1e9 / 8)
    stated = resolve_cluster(write(tmp_path, text + network.replace("100Gb/s", "100Gb/s, copied_rate: 100Gb/s")))
    assert stated.levels[-1].bytes_per_s == pytest.approx(nics * 12.5e9 / 8)


@pytest.mark.parametrize(
    ("nic", "node_gbit"),
    [("50Gb/s", 20), ("10Gb/s", 10), ("50Gb/s, copied_rate: 40Gb/s", 40), ("50Gb/s, copied_rate: 50Gb/s", 50)],
)
def test_kernel_sockets_move_no_more_than_a_host_copies(tmp_path: Path, nic: str, node_gbit: float) -> None:
    network = f"network: {{kind: ethernet, nics_per_node: 1, nic_rate: {nic}}}\n"
    cluster = resolve_cluster(write(tmp_path, "device: v100-sxm2-16\ndevices_per_node: 4\n" + network))
    assert cluster.levels[-1].bytes_per_s == pytest.approx(node_gbit * 1e9 / 8 / 4)
    remote = resolve_cluster(
        write(tmp_path, "device: v100-sxm2-16\ndevices_per_node: 4\n" + network.replace("ethernet", "roce"))
    )
    assert remote.levels[-1].bytes_per_s >= cluster.levels[-1].bytes_per_s
