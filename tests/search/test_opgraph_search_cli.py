"""The command line and the documents of a search over an operator graph."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from graph_requests import RESNET, run
from paradl_resnet50 import resnet50_net

from forerun.search.cli import main
from forerun.simulator import TIME_PARTS

V100_BYTES_PER_S = 900e9


def test_nothing_fits_is_one_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*"search cosmoflow-512 --cluster abci-v100 --gpus 1 --global-batch 2/gpu --json".split()]) == 3
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["leaderboard"] == [] and document["space"]["feasible"] == 0
    assert document["message"] in captured.err


def test_search_prints_a_table_and_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(f"search {RESNET} --gpus 4..16", capsys)
    assert "best of every other family" in text and "data+filter" not in text.split("bottleneck")[0]
    assert max(map(len, text.splitlines())) <= 80
    document = json.loads(run(f"search {RESNET} --gpus 4..16 --json", capsys))
    first = document["leaderboard"][0]
    assert first["rank"] == 1
    assert sum(first["breakdown_s"].values()) == pytest.approx(first["step_time_s"])
    assert document["request"]["global_batch"] == "64/gpu"
    assert document["space"]["feasible"] > 10
    assert any("precision fp32" in line for line in document["request"]["defaults"])


def test_out_writes_the_leaderboard(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("out") / "board"
    run(f"search {RESNET} --gpus 4 --out", capsys, words=(str(folder),))
    rows = list(csv.DictReader(io.StringIO((folder / "leaderboard.csv").read_text())))
    assert rows[0]["rank"] == "1"
    assert (folder / "request.yaml").exists()


def test_the_page_counts_samples_and_comes_back_from_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, again, folder = tmp_path / "a.html", tmp_path / "b.html", tmp_path / "run"
    files = ("--out", str(folder), "--report", str(page), "--usd-per-gpu-hour", "2")
    run("search alexnet --cluster dgx1-v100 --gpus 2..4 --global-batch 32/gpu", capsys, words=files)
    run(f"report {folder} --out {again}", capsys)
    text = page.read_text()
    assert text == again.read_text()
    body = re.sub(r' data-key="\w+"', "", text.split("</style>")[1].split("<script")[0])  # what a column is sorted by
    for words in (
        "images/s per GPU",
        "USD/Mimg",
        "Simulated event by event",
        "--global-batch 32/gpu",
        "exposed gradient",
    ):
        assert words in body
    for words in ("tok/s", "tokens", ">None<", "nan"):
        assert words not in body


@pytest.mark.slow
def test_refined_rows_are_simulated_and_keep_what_holds_them_up(capsys: pytest.CaptureFixture[str]) -> None:
    command = "search alexnet --cluster dgx1-v100 --gpus 4 --global-batch 32/gpu --json"
    closed = {row["strategy"]: row for row in json.loads(run(command, capsys))["leaderboard"]}
    board = json.loads(run(f"{command} --refine 3", capsys))
    for row in board["leaderboard"]:
        before = closed[row["strategy"]]
        assert row["step_time_s"] == pytest.approx(before["step_time_s"], rel=0.05)
        assert row["bottleneck"] == before["bottleneck"]
        assert set(row["breakdown_s"]) == set(TIME_PARTS)
    assert any("simulated event by event" in note for note in board["request"]["notes"])


def test_two_splits_are_compared_part_by_part(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--strategy", "data16", "--strategy", "data4 filter4 segments4")
    document = json.loads(run(f"compare {RESNET} --json", capsys, words=words))
    one, other = document["rows"]
    assert sum(document["difference_s"].values()) == pytest.approx(other["step_time_s"] - one["step_time_s"])
    assert one["samples_per_s"] > other["samples_per_s"] and document["text"].startswith("B ")
    text = run(f"compare {RESNET}", capsys, words=words)
    assert "images/s/GPU" in text and "tokens" not in text
    # A step on twice the GPUs has twice the samples: what it loses is what a sample takes more.
    words = ("--strategy", "data1", "--strategy", "data2")
    text = json.loads(run(f"compare {RESNET} --framework ideal --json", capsys, words=words))["text"]
    assert text.startswith("B on 2 instead of 1 GPUs") and "1.00 times" in text and "0.2% more GPU time" in text


def test_a_bound_on_the_risk_of_running_out_of_memory_leaves_less(capsys: pytest.CaptureFixture[str]) -> None:
    command = "search vgg16 --cluster abci-v100 --gpus 4 --global-batch 128/gpu --top 1000 --json"
    free, bounded = (json.loads(run(f"{command}{more}", capsys)) for more in ("", " --oom-risk 1%"))
    limit = {row["memory_limit_gib"] for row in bounded["leaderboard"]}
    assert max(row["peak_memory_gib"] for row in bounded["leaderboard"]) <= min(limit)
    assert min(limit) < min(row["memory_limit_gib"] for row in free["leaderboard"])
    assert all(row["oom_risk"] <= 0.01 for row in bounded["leaderboard"])


def test_explain_shows_phases_classes_and_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(f"explain {RESNET} --strategy", capsys, words=("data4 filter4 segments4",))
    for word in ("gradient exchange", "weight update", "redundant compute*", "all links twice as fast", "is repeated"):
        assert word in text
    assert "?" not in text
    document = json.loads(run(f"explain {RESNET} --json --strategy", capsys, words=("data16",)))
    assert sum(document["phases_s"].values()) == pytest.approx(document["row"]["step_time_s"])
    assert set(document["doubling"]) == {"bandwidth", "compute", "batch", "bisection"}


def test_simulate_predicts_one_split(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(f"simulate {RESNET} --json --strategy", capsys, words=("data16",)))
    assert document["row"]["strategy"] == "data16"
    assert document["row"]["global_batch"] == 1024


def test_switches_of_gradients_change_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    simulate = f"simulate {RESNET} --strategy data16 --json"

    def step_s(more: str) -> float:
        return float(json.loads(run(f"{simulate} {more}", capsys))["step_time_s"])

    assert step_s("--without gradient-overlap") > step_s("") * 1.02
    # One bucket of all gradients is full when the backward pass ends.
    assert step_s("--with bucket=1TiB") > step_s("") * 1.02
    assert step_s("--with bucket=1TiB --fidelity events") == pytest.approx(step_s("--with bucket=1TiB"), rel=0.02)
    document = json.loads(run(f"search {RESNET} --gpus 16 --without gradient-overlap --json", capsys))
    assert document["request"]["switches"] == {"gradient-overlap": "off"}
    assert min(row["step_time_s"] for row in document["leaderboard"] if row["strategy"] == "data16") == step_s(
        "--without gradient-overlap"
    )


def test_storage_limits_a_step_that_loads_longer_than_it_computes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        json.loads(run(f"simulate {RESNET} --strategy data16 --json --with storage={rate}", capsys))
        for rate in ("100MB/s", "50MB/s", "1TB/s")
    ]
    computed_s = rows[2]["step_time_s"]
    assert rows[2]["breakdown_s"]["input"] == 0
    assert rows[0]["step_time_s"] > computed_s
    # Samples of the next step load while this one runs: the step takes as long as its loading.
    assert rows[1]["step_time_s"] == pytest.approx(2 * rows[0]["step_time_s"])


@pytest.mark.parametrize("split", ["data8", "data8 tables", "data2 pipeline4 segments4"])
def test_dense_gradients_of_tables_are_kept_sent_and_updated(split: str, capsys: pytest.CaptureFixture[str]) -> None:
    simulate = "simulate dlrm-516m --cluster abci-v100 --global-batch 4096 --optimizer adam --json"

    def simulated(more: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(run(f"{simulate} {more} --strategy", capsys, words=(split,)))
        return document

    rows, dense = simulated(""), simulated("--with table-gradients=dense")
    memory = dense["memory_gib"]
    assert memory["gradients"] == pytest.approx(memory["parameters"])
    assert memory["optimizer"] == pytest.approx(2 * memory["parameters"])
    assert memory["parameters"] == pytest.approx(rows["memory_gib"]["parameters"])
    # Adam reads parameter, gradient and two states, and writes three of them: seven values of four bytes.
    least_s = 7 * memory["parameters"] * 2**30 / V100_BYTES_PER_S
    assert least_s <= dense["breakdown_s"]["update"] < 1.5 * least_s
    exchanged = [one["breakdown_s"]["gradient"] for one in (rows, dense)]
    assert exchanged[1] == pytest.approx(exchanged[0]) if "tables" in split else exchanged[1] > exchanged[0]
    events = simulated("--with table-gradients=dense --fidelity events")
    assert events["step_time_s"] == pytest.approx(dense["step_time_s"], rel=0.02)
    assert events["peak_memory_gib"] == pytest.approx(dense["peak_memory_gib"], rel=0.02)


@pytest.mark.parametrize(
    "words",
    [
        "storage=0B/s",
        "storage=50MiB",
        "table-gradients",
        "table-gradients=some",
        "bucket",
        "bucket=0B",
        "bucket=fast",
        "gradient-overlap=some",
        "tp-comm-overlap",
        "bucket=1MiB,bucket=2MiB",
    ],
)
def test_switches_that_graphs_do_not_have_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*f"simulate {RESNET} --strategy data16 --with {words}".split()]) == 2
    assert words.partition("=")[0] in capsys.readouterr().err


def test_mixtures_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "explain vgg16 --cluster abci-v100 --global-batch 32/gpu"
    text = run(f"{arguments} --strategy", capsys, words=("data16, linear*: filter16",))
    assert "VGG-16: data16, linear*: filter16" in text and "layer-wise collectives*" in text
    document = json.loads(run(f"{arguments} --json --strategy", capsys, words=("data16, linear*: filter16",)))
    assert document["row"]["family"] == "mixture"
    assert "unknown operator of VGG-16" in run(f"{arguments} --strategy", capsys, code=2, words=("data4, fc: filter4",))


def test_files_of_paradl_are_searched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "resnet.net").write_text(resnet50_net())
    (tmp_path / "abci.plat").write_text(
        "memory 16e9\nflops 15.7e12\nbandwidth 12.5e9\nlatency 30e-6\ngpus 64\ngpus_per_node 4\n"
    )
    files = [str(tmp_path / "resnet.net"), "--cluster", str(tmp_path / "abci.plat")]
    document = json.loads(run("search --gpus 4..16 --global-batch 64/gpu --json", capsys, words=tuple(files)))
    assert document["leaderboard"][0]["strategy"] == "data16"
    assert any("in proportion to a V100" in line for line in document["request"]["defaults"])
    (tmp_path / "abci.plat").write_text("16e9\n15.7e12\n12.5e9\n30e-6\n63\n4\n")
    assert "multiple of gpus_per_node" in run("search --gpus 4 --global-batch 64", capsys, code=2, words=tuple(files))
