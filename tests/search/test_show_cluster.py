"""What `forerun show CLUSTER` prints is a cluster file: `--cluster` reads it back as the same cluster."""

import dataclasses
from pathlib import Path

import pytest

from forerun.search.cli import main
from forerun.spaces.clusters import cluster_names, load_cluster, resolve_cluster
from forerun.spaces.clusters.cluster import Cluster

MATRIX = """
        GPU0    GPU1    CPU Affinity    NUMA Affinity
GPU0     X      NV12    0-31            0
GPU1    NV12     X      0-31            0
"""


def unnamed(cluster: Cluster) -> Cluster:
    return dataclasses.replace(cluster, name="", title="", source="", catalogued=False)


def shown(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["show", name]) == 0
    path = folder / "mine.yaml"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize("name", cluster_names())
def test_every_catalogued_cluster_reads_back(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert unnamed(resolve_cluster(str(shown(name, tmp_path, capsys)))) == unnamed(load_cluster(name))


def test_a_search_takes_what_show_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shown("dgx-h100", tmp_path, capsys)
    request = ["search", "llama3-8b", "--gpus", "16", "--global-batch", "64", "--seq-len", "4096", "--top", "1"]
    assert main([*request, "--cluster", str(path)]) == 0


def test_a_topology_becomes_a_cluster_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "node.txt").write_text(MATRIX)
    (tmp_path / "own.yaml").write_text("topology: node.txt\ndevice: a100-sxm4-80\nmax_devices: 2\n")
    own = str(tmp_path / "own.yaml")
    assert unnamed(resolve_cluster(str(shown(own, tmp_path, capsys)))).levels == resolve_cluster(own).levels


def test_groups_of_nodes_stay_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "mixed.yaml"
    own.write_text("groups:\n- {cluster: dgx-h100, devices: 8}\n- {cluster: dgx-a100-80, devices: 8}\n")
    cluster = resolve_cluster(str(shown(str(own), tmp_path, capsys)), groups=True)
    assert [group.devices for group in cluster.groups] == [8, 8]


def test_the_comments_say_what_follows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "dgx-h100"]) == 0
    out = capsys.readouterr().out
    assert "#   scale-up: nvswitch, 8 devices, 450 GB/s, 600 ns\n" in out
    assert "#   scale_up.latency: 600 ns" in out
