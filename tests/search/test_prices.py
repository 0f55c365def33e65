"""Prices of devices come from SkyPilot's catalogue of a cloud, or from a sentence on how to get it."""

import json
from pathlib import Path

import pytest

import forerun
from forerun.search.cli import main
from forerun.spaces.errors import RequestError

HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"
AWS = f"""{HEADER}
one,H100,1.0,16,256,,4.0,2.0,us-east-1,us-east-1a
eight,H100,8.0,192,2048,"{{'Gpus': [1]}}",55.04,20.0,eu-north-1,eu-north-1a
eight,H100,8.0,192,2048,"{{'Gpus': [1]}}",44.0,20.0,us-east-1,us-east-1b
ampere,A100-80GB,8.0,96,1152,,32.0,,us-east-1,us-east-1b
blackwell,B200,8.0,192,2048,,,40.0,us-east-1,us-east-1b
none,,,4,8,,0.1,0.05,us-east-1,us-east-1a
"""
JOB: "forerun.SearchJob" = {"cluster": "dgx-h100", "gpus": 8, "global_batch": 64, "seq_len": 4096, "top": 1}
GROUPS = "groups: [{cluster: dgx-h100, devices: 8}, {cluster: dgx-a100-80, devices: 24}]"


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a table of AWS in the newest of two forms of the catalogue."""
    for version, text in (("v8", f"{HEADER}\n"), ("v10", AWS)):
        folder = tmp_path / ".sky" / "catalogs" / version / "aws"
        folder.mkdir(parents=True)
        (folder / "vms.csv").write_text(text)
    monkeypatch.setenv("SKY_RUNTIME_DIR", str(tmp_path))
    return folder / "vms.csv"


@pytest.mark.usefixtures("catalogue")
def test_the_least_price_of_nodes_of_that_size_counts() -> None:
    priced = forerun.search("llama3-8b", usd_per_gpu_hour="sky:aws", **JOB)
    plain = forerun.search("llama3-8b", usd_per_gpu_hour=5.5, **JOB)

    assert priced.rows[0].cost_usd_per_hour == plain.rows[0].cost_usd_per_hour == 44.0
    assert any("5.5 USD per GPU-hour (eight in us-east-1, SkyPilot" in text for text in priced.defaults)


@pytest.mark.usefixtures("catalogue")
def test_the_request_that_is_written_has_the_number(capsys: pytest.CaptureFixture[str]) -> None:
    words = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096 --top 1 --json"

    assert main([*words.split(), "--usd-per-gpu-hour", "sky:aws"]) == 0

    assert json.loads(capsys.readouterr().out)["request"]["usd_per_gpu_hour"] == 5.5


@pytest.mark.usefixtures("catalogue")
def test_nodes_that_differ_cost_their_mean(tmp_path: Path) -> None:
    from forerun.search.request.prices import usd_per_device_hour
    from forerun.spaces.clusters import resolve_cluster

    mixed = tmp_path / "mixed.yaml"
    mixed.write_text(GROUPS)

    assert usd_per_device_hour("sky:aws", resolve_cluster(str(mixed), groups=True))[0] == pytest.approx(
        (8 * 5.5 + 24 * 4) / 32
    )


@pytest.mark.parametrize(
    ("price", "cluster", "message"),
    [
        ("sky:gcp", "dgx-h100", "catalogue of gcp is not on this machine .* number"),
        ("sky:aws", "dgx-b200", "no price of B200"),
        ("sky:aws", "mi355x-platform", "SkyPilot has no accelerator for mi355x"),
        ("sky:../aws", "dgx-h100", "number or sky:CLOUD"),
        ("two", "dgx-h100", "number or sky:CLOUD"),
    ],
)
@pytest.mark.usefixtures("catalogue")
def test_a_price_that_is_not_known_is_named(price: str, cluster: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        forerun.search("llama3-8b", usd_per_gpu_hour=price, **{**JOB, "cluster": cluster})


def test_a_table_that_cannot_be_read_is_named(catalogue: Path) -> None:
    catalogue.write_bytes(b"InstanceType,Price\n\xff\n")

    with pytest.raises(RequestError, match=r"vms\.csv cannot be read"):
        forerun.search("llama3-8b", usd_per_gpu_hour="sky:aws", **JOB)


@pytest.mark.parametrize("word", ["sky:", "sky:AWS", "two"])
def test_the_flag_says_what_it_takes(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096"

    assert main([*words.split(), "--usd-per-gpu-hour", word]) == 2

    assert f"but got '{word}'" in capsys.readouterr().err
