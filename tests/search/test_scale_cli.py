"""``forerun scale``: throughput against workers, its errors, and files of profiles."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from forerun.search.cli import main
from forerun.search.scale.options import worker_counts
from forerun.spaces.errors import RequestError

PROFILE = """\
name: small
batch: 16
update: 2ms
layers:
  - {name: conv, parameters: 4MB, forward: 20ms, backward: 40ms}
  - {name: head, parameters: 16MB, forward: 5ms, backward: 10ms}
"""
STEP_S = 0.077


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(PROFILE, encoding="utf-8")
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["scale", *words, "--json"]) == 0
    out, err = capsys.readouterr()
    assert not err
    found: dict[str, Any] = json.loads(out)
    return found


def test_one_worker_is_the_measured_profile(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, profile, "--bandwidth", "10Gb/s", "--workers", "1,2")
    assert found["one_worker"]["step_time_s"] == pytest.approx(STEP_S)
    assert found["points"][0]["step_time_s"] == pytest.approx(STEP_S)
    assert found["points"][0]["samples_per_s"] == pytest.approx(16 / STEP_S)
    assert found["points"][1]["efficiency"] < 1
    assert found["mode"] == "all-reduce" and "mode all-reduce" in found["defaults"]


def test_efficiency_is_that_of_one_worker_whatever_is_asked(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole = answer(capsys, profile, "--bandwidth", "1Gb/s", "--workers", "1,8")["points"]
    last = answer(capsys, profile, "--bandwidth", "1Gb/s", "--workers", "8")["points"]
    assert whole[0]["efficiency"] == pytest.approx(1.0)
    assert last[0]["efficiency"] == whole[1]["efficiency"] < 0.9


def test_a_measured_step_stretches_the_profile(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, profile, "--bandwidth", "10Gb/s", "--workers", "1", "--step-time", "154ms")
    assert found["one_worker"]["step_time_s"] == pytest.approx(0.154)
    assert found["one_worker"]["update_s"] == pytest.approx(0.004)


def test_asynchronous_servers_saturate(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    rate = 1e9 / 8
    words = (profile, "--bandwidth", "1Gb/s", "--mode", "async-ps", "--shards", "2", "--workers", "1..16")
    found = answer(capsys, *words, "--servers", "policy=fifo")
    bound = 16 * 2 * rate / 20e6
    assert found["points"][-1]["network_bound_samples_per_s"] == pytest.approx(bound)
    assert found["saturation"]["reached"] and found["saturation"]["workers"] < 16
    assert max(point["samples_per_s"] for point in found["points"]) <= 1.05 * bound
    assert [point["workers"] for point in found["points"]] == [1, 2, 4, 8, 16]
    assert found["points"][-1]["staleness"] == pytest.approx(15, rel=0.1)
    assert found["points"][1]["disagreement"] == pytest.approx(
        found["points"][1]["analytic_samples_per_s"] / found["points"][1]["events_samples_per_s"] - 1
    )


def test_a_model_of_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("resnet50", "--cluster", "dgx1-v100", "--batch", "64", "--workers", "1..16")
    found = answer(capsys, *words)
    assert found["one_worker"]["parameter_bytes"] == pytest.approx(4 * 25_557_032)
    one, *_, most = found["points"]
    assert 0.8 < most["efficiency"] <= 1.0 + 1e-9
    assert one["samples_per_s"] == pytest.approx(64 / found["one_worker"]["step_time_s"])
    assert {"precision fp32", "framework pytorch-ddp"} <= set(found["defaults"])


def test_a_transformer(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bert-large", "--cluster", "dgx-a100-40", "--precision", "fp16", "--batch", "32", "--seq-len", "128")
    found = answer(capsys, *words, "--workers", "1,8")
    assert found["one_worker"]["parameter_bytes"] == pytest.approx(4 * 336e6, rel=0.01)
    # DeepLearningExamples: PyTorch BERT-Large on one and eight A100, mixed precision, sequence 128: 4591 of 8 x 580.
    assert found["points"][1]["efficiency"] == pytest.approx(4591 / 8 / 580, abs=0.05)
    assert "framework megatron-lm" in found["defaults"]


def test_what_limits_a_run(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    """20 MB twice over 1 Gb/s is 320 ms against 75 ms of passes; over 1 Tb/s it is nothing."""
    slow = answer(capsys, profile, "--bandwidth", "1Gb/s", "--mode", "sync-ps", "--workers", "4")
    gains = {change["change"]: change["gain"] for change in slow["changes"]}
    assert slow["limited_by"] == "the network"
    assert gains["bandwidth"] > 0.7 and gains["shards"] > 0.7 and abs(gains["compute"]) < 0.1
    assert "equal workers" not in gains
    fast = answer(capsys, profile, "--bandwidth", "1Tb/s", "--mode", "sync-ps", "--workers", "4", "--slow", "0=3")
    gains = {change["change"]: change["gain"] for change in fast["changes"]}
    assert fast["limited_by"] == "stragglers"
    assert gains["equal workers"] == pytest.approx(2, rel=0.05)
    assert gains["compute"] == pytest.approx(1, rel=0.05)
    assert [change["gain"] for change in fast["changes"]] == sorted(gains.values(), reverse=True)


@pytest.mark.slow
def test_text(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["scale", profile, "--bandwidth", "1Gb/s", "--mode", "async-ps", "--workers", "1..8", "--slow", "0:2"]
    assert main(words) == 0
    out, _ = capsys.readouterr()
    assert "small, async-ps, 1 shard on nodes of their own, multiplexed, batch 16 per worker" in out
    assert "saturates with" in out
    assert "upper bound set by the network: 100.0 samples/s with 8 workers" in out
    assert "8 workers: limited by the network; twice the batch" in out
    assert "staleness" in out and "defaults used: server bandwidth 125 MB/s; latency 0 ns" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_trace(profile: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    words = ["scale", profile, "--bandwidth", "1Gb/s", "--workers", "3", "--mode", "async-ps", "--trace", str(path)]
    assert main(words) == 0
    assert "wrote" in capsys.readouterr().err
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["cat"] for event in spans} == {"download", "forward", "backward", "upload", "update"}
    assert {event["pid"] for event in spans} == {0, 1, 2, 3}
    forward_us = sum(event["dur"] for event in spans if event["pid"] == 1 and event["cat"] == "forward")
    assert forward_us == pytest.approx(6 * 25e3, rel=0.1)
    for lane in {(event["pid"], event["tid"]) for event in spans}:
        own = sorted((event["ts"], event["dur"]) for event in spans if (event["pid"], event["tid"]) == lane)
        assert all(a + length <= b + 1e-3 for (a, length), (b, _) in pairwise(own))
    assert main([*words[:-1], str(tmp_path / "nowhere" / "run.json")]) == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mode", "sync-ps", "--shards", "9000000"], "9000000 shards for 5000000 parameters of small"),
        (["--mode", "sync-ps", "--shards", "5000"], "shards are at most 4096, but got 5000"),
        (["--jitter", "inf", "--workers", "2"], "jitter must be at least 0 and at most 10"),
        (["--seed", "-3"], "must be a whole number from 0"),
        (["--mode", "sync-ps", "--shards", "3", "--servers", "placement=whole"], "use 2 or fewer, or placement even"),
        (["--mode", "sync-ps", "--workers", "4", "--backup-workers", "4"], "use 3 or fewer"),
        (["--mode", "async"], "did you mean async-ps"),
        (["--mode", "async-ps", "--servers", "policy=random"], "unknown policy 'random'"),
        (["--servers", "policy=fifo"], "--servers policy: an all-reduce has no servers; add --mode sync-ps"),
        (["--mode", "sync-ps", "--servers", "polcy=fifo"], "unknown setting of servers 'polcy'; did you mean policy"),
        (["--mode", "sync-ps", "--servers", "policy"], "settings as NAME=VALUE, but got policy"),
        (
            ["--servers", "placement=whole,bandwidth=1Gb/s"],
            "--servers placement,bandwidth: an all-reduce has no servers",
        ),
        (["--mode", "async-ps", "--bucket", "1MiB"], "--bucket is for all-reduces"),
        (["--workers", "8..2"], "write 2..8"),
        (["--workers", "many"], "workers are like 8, 1,2,6 or 1..64"),
        (["--workers", "0"], "workers are 1 to 4096"),
        (["--slow", "8:2"], "use 0 to 0, or begin --workers at 9"),
        (["--slow", "two"], "must be a number and a factor, as in 3=1.2, but got 'two'"),
        (["--slow", "0=0"], "must be a number above 0"),
        (["--mode", "sync-ps", "--backup-workers", "100"], "100 backup workers leave none of 1..32 workers"),
        (["--latency", "1e308s"], "a time is 0 or"),
        (["--bandwidth", "1e-300B/s"], "a rate is 0 or"),
        (["--bandwidth", "10"], "write the unit too"),
        (["--step-time", "180"], "write the unit too"),
        (["--jitter", "-1", "--workers", "2"], "jitter must be at least 0"),
        (["--batch", "4"], "--batch belongs to models of the catalogue"),
        (["--fidelity", "exact"], "unknown fidelity 'exact'"),
        (["--bucket", "big"], "a size is a number with a unit"),
        (["--step-time", "0s"], "a step takes more than 0 seconds"),
    ],
)
def test_bad_requests(profile: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", profile, "--bandwidth", "1Gb/s", *words]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bert-large", "--cluster", "dgx1-v100"], "depends on the tokens per sequence; add --seq-len"),
        (["resnet51", "--cluster", "dgx1-v100"], "operator graphs: alexnet"),
        (["resnet50", "--cluster", "dgx1-v100", "--seq-len", "8"], "--seq-len belongs to transformers"),
        (["resnet50"], "add --cluster"),
        (["resnet50", "--cluster", "dgx1-v100", "--latency", "1us"], "they describe NICs"),
        (["resnet50", "--cluster", "titan-rtx-box", "--workers", "16"], "has at most 8 devices, but got 16 workers"),
        (["nowhere.yaml", "--bandwidth", "1Gb/s"], "no such file"),
    ],
)
def test_bad_models(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch: 16", "batch: 0", "line 2, batch"),
        ("forward: 20ms", "forward: soon", "layers.0.forward"),
        ("update: 2ms", "updates: 2ms", "update"),
        ("forward: 20ms", "forward: -1", "layers.0.forward"),
    ],
)
def test_bad_profiles(tmp_path: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(PROFILE.replace(old, new), encoding="utf-8")
    assert main(["scale", str(path), "--bandwidth", "1Gb/s"]) == 2
    assert message in capsys.readouterr().err


def test_a_network_without_rate(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", profile]) == 2
    assert "add --cluster or --bandwidth" in capsys.readouterr().err
    assert main(["scale", profile, "--bandwidth", "0Gb/s"]) == 2
    assert "worker_bytes_per_s must be at least 1" in capsys.readouterr().err


def test_worker_counts() -> None:
    assert worker_counts("1..10") == [1, 2, 4, 8, 10]
    assert worker_counts("3..3") == [3]
    assert worker_counts("6,1,2,6") == [1, 2, 6]
    with pytest.raises(RequestError):
        worker_counts("1..5000")


@pytest.mark.slow
def test_events_are_bounded_before_they_are_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = "".join(f"  - {{name: l{i}, parameters: 30MB, forward: 3ms, backward: 6ms}}\n" for i in range(2000))
    path = tmp_path / "deep.yaml"
    path.write_text(f"name: deep\nbatch: 32\nupdate: 1ms\nlayers:\n{layers}", encoding="utf-8")
    words = (str(path), "--bandwidth", "10Gb/s", "--workers", "1..8")
    found = answer(capsys, *words)
    assert any("fidelity analytic" in value for value in found["defaults"])
    assert main(["scale", *words, "--fidelity", "events"]) == 2
    assert "--fidelity analytic" in capsys.readouterr().err
