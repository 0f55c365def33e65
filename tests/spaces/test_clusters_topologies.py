"""Clusters from what NCCL and nvidia-smi say of a node, and one clear message for files that say nothing."""

import itertools
from pathlib import Path

import pytest
from levels_of_graph import levels_from_graph

from forerun.spaces.clusters import Cluster, build_graph, load_cluster, resolve_cluster
from forerun.spaces.errors import RequestError

SWITCH = '<nvlink target="fffffff:ff:ff.0" count="12" tclass="0x068000"/>'
GEN4 = 'link_speed="16.0 GT/s PCIe" link_width="16"'


def gpu(dev: int, *, device: str = "0x20b2", links: str = SWITCH, pcie: str = GEN4) -> str:
    return (
        f'<pci busid="0000:{dev:02x}:00.0" class="0x030200" vendor="0x10de" device="{device}" {pcie}>'
        f'<gpu dev="{dev}" sm="80" rank="{dev}" gdr="1">{links}</gpu></pci>'
    )


def nic(number: int, *, speed: int = 200000, kind: str = "0x020700") -> str:
    return (
        f'<pci busid="0000:a{number}:00.0" class="{kind}" vendor="0x15b3" device="0x101b" {GEN4}>'
        f'<nic><net name="mlx5_{number}" dev="{number}" speed="{speed}" port="1"/></nic></pci>'
    )


def branch(*leaves: str) -> str:
    return f'<pci busid="0000:f0:00.0" class="0x060400" {GEN4}>{"".join(leaves)}</pci>'


def system(*sockets: str) -> str:
    cpus = (f'<cpu numaid="{at}" affinity="ff" arch="x86_64">{inside}</cpu>' for at, inside in enumerate(sockets))
    return f'<system version="1">{"".join(cpus)}</system>'


def dgx_a100() -> str:
    return system(*("".join(branch(gpu(n), nic(n)) for n in range(first, first + 4)) for first in (0, 4)))


def matrix(rows: list[list[str]], *, nics: int = 0, products: str = "") -> str:
    labels = [f"GPU{n}" for n in range(len(rows) - nics)] + [f"NIC{n}" for n in range(nics)]
    head = "\t\x1b[4m" + "\t".join(labels) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
    body = [
        "\t".join([label, *row, *(["0-31", "0", "N/A"] if number < (len(rows) - nics) / 2 else ["32-63", "1", "N/A"])])
        for number, (label, row) in enumerate(zip(labels, rows, strict=True))
    ]
    return "\n".join([products, head, *body, "", "Legend:", "", "  X    = Self"])


def read(tmp_path: Path, text: str, name: str = "node.xml", **extra: str) -> Cluster:
    (tmp_path / name).write_text(text, encoding="utf-8")
    if not extra:
        return resolve_cluster(str(tmp_path / name))
    lines = [f"topology: {name}", *(f"{key}: {value}" for key, value in extra.items())]
    (tmp_path / "mine.yaml").write_text("\n".join(lines), encoding="utf-8")
    return resolve_cluster(str(tmp_path / "mine.yaml"))


def test_a_dgx_a100_reads_as_the_catalogued_one(tmp_path: Path) -> None:
    cluster, known = read(tmp_path, dgx_a100()), load_cluster("dgx-a100-80")

    assert (cluster.device, cluster.devices_per_node) == (known.device, known.devices_per_node)
    for mine, theirs in zip(cluster.levels, known.levels, strict=True):
        assert (mine.name, mine.kind, mine.in_switch) == (theirs.name, theirs.kind, theirs.in_switch)
        assert mine.bytes_per_s == pytest.approx(theirs.bytes_per_s)
    assert cluster.spec is not None
    assert levels_from_graph(build_graph(cluster.spec, 2))[0] == cluster.levels[0]
    assert cluster.spec.host.sockets == 2
    assert cluster.spec.network is not None
    assert cluster.spec.network.direct


def test_a_providers_file_without_gpus_and_ports_needs_the_device(tmp_path: Path) -> None:
    """As Azure ships it: PCI classes alone, several devices and cards behind one switch."""
    leaf = '<pci busid="000{n}:00:00.0" class="{kind}" link_speed="16 GT/s" link_width="16"/>'
    inside = branch(*(leaf.format(n=n, kind=kind) for n in (1, 2) for kind in ("0x030200", "0x020700")))
    text = system(inside, inside.replace("000", "001"))

    with pytest.raises(RequestError, match=r"does not say which catalogued device .*`topology: node\.xml` and `device"):
        read(tmp_path, text)
    cluster = read(tmp_path, text, device="a100-sxm4-40")
    assert (cluster.devices_per_node, cluster.levels[0].kind, cluster.levels[0].bytes_per_s) == (4, "nvswitch", 300e9)
    assert cluster.spec is not None
    assert cluster.spec.network is not None
    assert cluster.spec.network.kind == "infiniband"


def test_pcie_without_width_and_slow_ports_are_noted_and_left_aside(tmp_path: Path) -> None:
    virtual = 'link_speed="32.0 GT/s PCIe" link_width="0"'
    text = system(branch(gpu(0, links="", pcie=virtual), nic(0), nic(1, speed=10000, kind="0x020000")))
    cluster = read(tmp_path, text, device="h100-sxm")

    assert any(note.startswith("host.rate: the file states no PCIe speed") for note in cluster.defaults)
    assert any(note.startswith("network: 1 slower ports left aside") for note in cluster.defaults)
    assert cluster.levels[-1].bytes_per_s == 25e9


def test_links_between_pairs_make_islands(tmp_path: Path) -> None:
    def bridged(dev: int) -> str:
        other = f'<nvlink target="0000:{dev ^ 1:02X}:00.0" count="4" tclass="0x030200"/>'
        return gpu(dev, links=other)

    cluster = read(tmp_path, system(*("".join(map(bridged, pair)) for pair in ((0, 1), (2, 3)))))
    assert [(level.name, level.size, level.kind) for level in cluster.levels] == [
        ("scale-up", 2, "nvlink-mesh"),
        ("node", 4, "pcie"),
    ]
    assert cluster.levels[0].bytes_per_s == 4 * 25e9
    assert cluster.max_devices == 4


CUBE = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 1, (2, 6): 2, (3, 7): 2,
    (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 1,
}  # fmt: skip
"""NVLinks between the devices of a DGX-1 with V100 (nvidia-smi topo -m)."""


@pytest.mark.parametrize(("count", "joined"), [(1, 0), (2, 1), (4, 4), (8, 6)])
def test_jobs_on_some_devices_of_a_dgx1_list_those_alone(count: int, joined: int, tmp_path: Path) -> None:
    """Their links still lead to all devices of the node."""

    def links(one: int) -> str:
        joined_pairs = {pair: number for pair, number in CUBE.items() if one in pair}
        return "".join(
            f'<nvlink target="0000:{sum(pair) - one:02x}:00.0" count="{number}" tclass="0x030200"/>'
            for pair, number in joined_pairs.items()
        )

    leaves = [gpu(n, device="0x1db1", links=links(n)) for n in range(count)]
    sockets = [branch(*leaves[at : at + 4], nic(at, speed=100000)) for at in range(0, count, 4)]
    cluster = read(tmp_path, system(*sockets))
    assert cluster.device.name == "v100-sxm2-16" and cluster.devices_per_node == count
    left = [note for note in cluster.defaults if "does not list" in note]
    assert bool(left) == (count < 8)
    if count > 1:
        mesh = cluster.levels[0]
        assert (mesh.kind, mesh.size) == ("nvlink-mesh", count)
        assert mesh.bytes_per_s == pytest.approx(joined * 25e9)  # of a ring over all of them, both ways


def test_the_matrix_of_a_dgx1_is_its_cube_mesh(tmp_path: Path) -> None:
    spec = load_cluster("dgx1-v100").spec
    assert spec is not None
    assert spec.scale_up is not None
    links = {(a, b): n for a, b, n in spec.scale_up.mesh}
    far = {(a, b): "SYS" if a // 4 != b // 4 else "NODE" for a, b in itertools.combinations(range(8), 2)}
    cell = {pair: f"NV{links[pair]}" if pair in links else far[pair] for pair in far}
    rows = [["X" if a == b else cell[min(a, b), max(a, b)] for b in range(8)] for a in range(8)]
    text = matrix(rows, products="GPU 0: Tesla V100-SXM2-32GB (UUID: GPU-1)")
    read_back = read(tmp_path, text, "topo.txt", network="{kind: infiniband, nics_per_node: 4}").spec

    assert read_back is not None
    assert read_back.scale_up is not None
    assert read_back.scale_up.mesh == spec.scale_up.mesh
    assert (read_back.host.sockets, read_back.scale_up.bytes_per_s) == (2, spec.scale_up.bytes_per_s)


def test_the_matrix_of_a_switch_shows_all_links_to_every_device(tmp_path: Path) -> None:
    rows = [
        ["X" if a == b else "NV18" for b in range(4)] + ["PIX" if a == b else "NODE" for b in range(4)]
        for a in range(4)
    ]
    rows += [
        ["PIX" if a == b else "NODE" for a in range(4)] + ["X" if a == b else "NODE" for a in range(4)]
        for b in range(4)
    ]
    text = matrix(rows, nics=4, products="GPU 0,1,2,3: NVIDIA H100 80GB HBM3")
    cluster = read(tmp_path, text, "topo.txt")

    assert (cluster.levels[0].kind, cluster.levels[0].size, cluster.levels[0].bytes_per_s) == ("nvswitch", 4, 450e9)
    assert cluster.levels[1].bytes_per_s == 50e9


def test_devices_behind_one_pcie_switch_share_its_link(tmp_path: Path) -> None:
    """Two PCIe devices to a switch, two switches to a socket: what leaves a switch is half of a link each."""
    one = "".join(branch(*(gpu(n, device="0x20b5", links="") for n in pair)) for pair in ((0, 1), (2, 3)))
    two = "".join(branch(*(gpu(n, device="0x20b5", links="") for n in pair)) for pair in ((4, 5), (6, 7)))
    cluster = read(tmp_path, system(one, two), scale_up="none")
    far = [["X" if a == b else "PIX" if a // 2 == b // 2 else "NODE" for b in range(4)] for a in range(4)]
    text = matrix(far, products="GPU 0: NVIDIA A100 80GB PCIe").replace("32-63", "0-31")
    same = read(tmp_path, text, "topo.txt", scale_up="none", host="{rate: 32GB/s}")

    assert [(level.name, level.size, level.bytes_per_s) for level in cluster.levels] == [
        ("switch", 2, 32e9),
        ("socket", 4, 16e9),
        ("node", 8, 6e9),
    ]
    assert [(level.name, level.size) for level in same.levels] == [("switch", 2), ("node", 4)]
    assert cluster.spec is not None
    graph = levels_from_graph(build_graph(cluster.spec, 1))
    assert [level.bytes_per_s for level in graph] == pytest.approx([level.bytes_per_s for level in cluster.levels])


def test_keys_of_the_cluster_file_override_the_topology(tmp_path: Path) -> None:
    cluster = read(
        tmp_path,
        dgx_a100(),
        network="{kind: roce, nic_rate: 100Gb/s, leaf_nodes: 4, oversubscription: 2}",
        max_devices="64",
    )
    assert cluster.spec is not None
    assert cluster.spec.network is not None
    assert (cluster.spec.network.kind, cluster.spec.network.nic_bytes_per_s) == ("roce", 12.5e9)
    assert (cluster.spec.network.nics_per_node, cluster.max_devices) == (8, 64)
    assert cluster.levels[-1].oversubscription == 2


BOMB = (
    '<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    '<system version="1"><cpu numaid="&b;"/></system>'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "node.xml is empty"),
        (BOMB, r"node\.xml, line 1: a topology has no document type and no entities"),
        ('<!DOCTYPE s SYSTEM "file:///etc/passwd"><system/>', "no document type and no entities"),
        ('<system version="1">&undefined;</system>', r"line 1: not well-formed XML \(undefined entity\)"),
        (dgx_a100()[:500], r"line 1: not well-formed XML .*; was it cut off\?"),
        ("<graphs/>", "begins with <system>, but got <graphs>; set NCCL_TOPO_DUMP_FILE"),
        ('<system version="1"/>', "names its devices .* but has none"),
        ("<system>" + "<a>" * 100, r"at most 20,000 elements in 64 levels"),
        ("<system>" + "<a/>" * 30000 + "</system>", r"at most 20,000 elements"),
        (dgx_a100().replace('count="12"', 'count="-7"', 1), r"count of <nvlink> must be a whole number .* '-7'"),
        (dgx_a100().replace('count="12"', 'count="9e99"', 1), r"count of <nvlink> must be a whole number"),
        (system(gpu(0) + gpu(1, device="0x2330")), "devices of a node must be equal, but got a100-sxm4-80, h100-sxm"),
        (system(gpu(0) + gpu(1, links="")), "device 1 has 0 NVLinks to the switch where others have 12; it can"),
        (
            system(*(gpu(n, links='<nvlink target="0000:77:00.0" count="2" tclass="0x010000"/>') for n in (0, 1))),
            r"NVLink of device 0 leads to 0000:77:00\.0, which is no device of the file",
        ),
        (system(gpu(0) + gpu(1) + gpu(2), gpu(3)), r"equally many devices, but got 3 and 1; .*host: \{sockets: 1\}"),
        ("GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-3\n", "the matrix has no row GPU1; was it cut off"),
        ("GPU0 GPU1 CPU Affinity\nGPU0 X SYS 0-3\nGPU1 SY\n", r"line 3: row GPU1 needs 2 of X, SYS, .* but got 'SY'"),
        ("GPU0 GPU1\nGPU0 X SYS\nGPU1 PIX X\n", "must be the same both ways, but GPU0 to GPU1 is SYS and"),
        ("nvidia-smi: command not found", "no matrix of `nvidia-smi topo -m` in it"),
        ("GPU0 GPU1\nGPU0 X SYS\nGPU1 SYS X\n", "does not say which catalogued device"),
    ],
)
def test_files_that_say_nothing_get_one_clear_message(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        read(tmp_path, text)
    assert "node.xml" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_wrong_key_beside_a_topology_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"mine\.yaml, line 2, netwrok"):
        read(tmp_path, dgx_a100(), netwrok="{kind: roce}")
    with pytest.raises(RequestError, match="unknown device"):
        read(tmp_path, dgx_a100(), device="h1000")


def test_links_of_rccl_files_are_a_mesh(tmp_path: Path) -> None:
    """A file of RCCL has <xgmi> elements: eight MI300X with a link to every other one, 448 GB/s together."""
    eight = range(8)
    links = {
        n: "".join(f'<xgmi target="0000:{m:02x}:00.0" count="1" tclass="0x038000"/>' for m in eight if m != n)
        for n in eight
    }
    sockets = ("".join(gpu(n, links=links[n]) for n in range(first, first + 4)) for first in (0, 4))
    (tmp_path / "topo.xml").write_text(system(*sockets))
    text = "device: mi300x\ntopology: topo.xml\ndevices_per_node: 8\n"
    (tmp_path / "ours.yaml").write_text(f"{text}network: {{kind: infiniband, nics_per_node: 8, nic_rate: 400Gb/s}}\n")
    node = resolve_cluster(str(tmp_path / "ours.yaml")).levels[0]
    assert (node.kind, node.size) == ("xgmi-mesh", 8)
    assert node.bytes_per_s == pytest.approx(448e9)


def all_joined(count: int, word: str) -> list[list[str]]:
    return [["X" if low == high else word for high in range(count)] for low in range(count)]


def test_the_table_of_nvidia_smi_names_the_device(tmp_path: Path) -> None:
    table = "\n".join(
        f"|   {n}  NVIDIA L40S                    On  |   00000000:4{n}:00.0 Off |                    0 |\n"
        "| N/A   32C    P8              33W /  350W |       1MiB /  46068MiB |      0%      Default |"
        for n in range(4)
    )

    assert read(tmp_path, matrix(all_joined(4, "NODE"), products=table), "smi.txt").device.name == "l40s"


def test_the_output_of_rocm_is_named_with_what_to_give(tmp_path: Path) -> None:
    text = "==== Link Type between two GPUs ====\n       GPU0   GPU1\nGPU0   0      XGMI\nGPU1   XGMI   0\n"

    with pytest.raises(RequestError, match=r"rocm-smi --showtopo.*RCCL"):
        read(tmp_path, text, "rocm.txt")
