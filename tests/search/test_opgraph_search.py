"""Searching, explaining and limits of operator graphs: order, counts, phases, laws and the command line."""

import csv
import dataclasses
import io
import json
from pathlib import Path

import pytest
from paradl_resnet50 import resnet50_net
from split_cases import split_rows

from forerun.search.api import explain, search, search_request
from forerun.search.cli import main
from forerun.search.opgraph.limits import PAYS, doubled, limits_of
from forerun.search.opgraph.what_if import congestion, doublings
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.search.stages import explore_request
from forerun.search.workers import Choice
from forerun.simulator import TIME_PARTS
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.space import splits_over
from forerun.spaces.errors import InfeasibleError, RequestError
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.limits import broken_laws
from forerun.spaces.opgraph.split import Mode, parse_split

RESNET = "resnet50 --cluster abci-v100 --global-batch 64/gpu"


def setting(model: str = "resnet50", gpus: str = "4..16", **changes: object) -> Setting[GraphContext]:
    request = Request(model=model, cluster="abci-v100", gpus=gpus, global_batch=PerDevice(64))
    return resolve(dataclasses.replace(request, **changes))  # type: ignore[arg-type]


def run(text: str, capsys: pytest.CaptureFixture[str], *, code: int = 0, words: tuple[str, ...] = ()) -> str:
    assert main([*text.split(), *words]) == code
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_rows_are_ordered_fit_and_are_counted() -> None:
    board = search_request(setting(top=10_000))
    rates = [row.throughput for row in board.rows]
    assert rates == sorted(rates, reverse=True)
    assert [row.rank for row in board.rows] == list(range(1, board.space.feasible + 1))
    assert all(row.fits for row in board.rows)
    assert board.space.size == board.space.feasible + sum(board.space.rejected.values())
    assert {row.strategy.family for row in board.rows} == {row.strategy.family for row in board.families}
    names = {row.strategy.family for row in board.families}
    assert {"data", "data+spatial", "data+filter", "data+channel", "data+pipeline", "filter", "channel"} <= names


def test_the_best_row_is_the_best_of_a_plain_loop() -> None:
    here = setting(gpus="8")
    board = search_request(here)
    model = load_graph_model("resnet50")
    legal = [split for split in splits_over(8, model, tuple(Mode)) if not list(broken_laws(model, split, 512))]
    best = max(
        (row for split in legal for row in split_rows(here.context, [split], [512]) if row.fits),
        key=lambda row: row.throughput,
    )
    assert board.rows[0].strategy == best.strategy
    assert board.rows[0].step_time_s == pytest.approx(best.step_time_s, rel=1e-12)


def test_objectives_rank_differently() -> None:
    cheap, fast, few = (search_request(setting(objective=name)).rows[0] for name in ("cost", "throughput", "gpus"))
    assert fast.gpus == 16
    assert few.gpus == 4
    assert cheap.throughput_per_gpu >= fast.throughput_per_gpu


def test_modes_restrict_the_space() -> None:
    board = search_request(setting(overrides={"mode": ["filter"]}, top=1000))
    assert {row.strategy.mode for row in board.rows} == {Mode.FILTER}


def test_nothing_fits_says_what_would_help() -> None:
    with pytest.raises(InfeasibleError, match=r"nothing fits: the leanest split, .* GiB usable; one sample at a time"):
        search_request(setting("cosmoflow-512", gpus="1"))
    with pytest.raises(InfeasibleError, match=r"the leanest split, pipeline.* usable; use a smaller batch than 64/gpu"):
        search_request(setting("unet", gpus="2", overrides={"mode": ["pipeline"]}))


def test_nothing_fits_is_one_document_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*"search cosmoflow-512 --cluster abci-v100 --gpus 1 --global-batch 2/gpu --json".split()]) == 3
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert document["leaderboard"] == [] and document["space"]["feasible"] == 0
    assert document["message"] in captured.err


def test_congestion_is_named_where_racks_share_their_uplinks() -> None:
    here = setting(framework="chainermn", gpus="1024")
    (far,) = split_rows(here.context, [parse_split("data64 filter16 segments16")], [64 * 1024])
    (near,) = split_rows(here.context, [parse_split("data16")], [1024])
    assert congestion(here.context, near) == ()
    assert all(one.name == "congestion" for one in congestion(here.context, far))


def test_bottlenecks_cover_the_step() -> None:
    here = setting()
    for text in ("data16", "data4 filter4", "data4 spatial2x2", "pipeline4 segments8", "data4 channel2 segments2"):
        split = parse_split(text)
        (row,) = split_rows(here.context, [split], [64 * split.devices])
        found = row.graph.bottlenecks
        assert sum(one.seconds or 0.0 for one in found) == pytest.approx(row.step_time_s, rel=1e-6)
        assert row.graph.bottleneck == found[0].name
        timed = [one.seconds for one in found if one.seconds is not None]
        assert timed == sorted(timed, reverse=True)


def test_classes_name_what_a_split_suffers_from() -> None:
    here = setting(framework="chainermn", seconds_per_sample=3.119502e-3)
    expected = {
        "data1024": "gradient exchange",
        "channel16": "layer-wise collectives",
        "spatial4": "point-to-point",
    }
    for text, name in expected.items():
        split = parse_split(text)
        batch = 64 * split.replicas if split.mode is not Mode.SPATIAL else 256 * split.replicas
        assert split_rows(here.context, [split], [batch])[0].graph.bottleneck == name
    (deep,) = split_rows(here.context, [parse_split("filter64")], [64])
    assert "maximum devices" in {one.name for one in deep.graph.bottlenecks}


def test_limits_mark_the_last_number_that_pays() -> None:
    limits = limits_of(setting(gpus="1..64", framework="chainermn"), (1, 2, 4, 8, 16, 32, 64))
    families = {family.family: family for family in limits.families}
    data = families["data"]
    assert [row.gpus for row in data.curve] == [1, 2, 4, 8, 16, 32, 64]
    assert data.useful_gpus == 64
    channel = families["channel"]
    before = [row for row in channel.curve if row.gpus <= channel.useful_gpus]
    after = next(row for row in channel.curve if row.gpus > channel.useful_gpus)
    share = after.throughput / before[-1].throughput - 1
    assert share < PAYS * (after.gpus / before[-1].gpus - 1)
    assert channel.stops.endswith(after.graph.bottleneck)
    assert doubled((1, 2, 3, 4, 6, 8, 12)) == (1, 2, 4, 8, 12)


def test_doubling_helps_what_it_should() -> None:
    here = setting(framework="chainermn")
    (row,) = split_rows(here.context, [parse_split("data4 channel4 segments4")], [1024])
    gains = {change.what: change.gain for change in doublings(here.context, row)}
    assert gains["bandwidth"] is not None and gains["bandwidth"] > 0.05
    assert all(gain is None or gain >= -1e-9 for gain in gains.values())


def test_search_prints_a_table_and_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(f"search {RESNET} --gpus 4..16", capsys)
    assert "best of every family" in text and "data+filter" not in text.split("held up by")[0]
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
    body = text.split("</style>")[1].split("<script")[0]
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


def test_python_shows_counts_and_refuses_as_the_command_line_does() -> None:
    board = search("alexnet", cluster="dgx1-v100", gpus=2, global_batch=64)
    assert "images/s/GPU" in board._repr_html_() and "images/s per GPU" in board.rows[0]._repr_html_()
    assert board.to_csv().startswith("rank,strategy,gpus,step_time_s,samples_per_s,")
    with pytest.raises(RequestError, match="data2 is a split"):
        explain("alexnet", strategy="data2", cluster="dgx1-v100", global_batch=64)
    with pytest.raises(RequestError, match="stages that differ are searched for transformers"):
        explore_request(Request(model="alexnet", cluster="dgx1-v100", gpus="2", global_batch=64))
    with pytest.raises(RequestError, match="seq_len is for transformers, and alexnet is an operator graph"):
        search("alexnet", cluster="dgx1-v100", gpus=2, global_batch=64, seq_len=128)
    with pytest.raises(RequestError, match="optimizer is for operator graphs, and gpt2 is not"):
        search("gpt2", cluster="dgx1-v100", gpus=2, global_batch=64, seq_len=128, optimizer="adam")


def test_workers_find_what_one_process_finds() -> None:
    asked = setting("alexnet", gpus="4..8")
    alone = search_request(asked)
    shared = search_request(asked, workers=Choice(kind="processes", count=2))
    assert (shared.rows, shared.families, shared.space) == (alone.rows, alone.families, alone.space)


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
    for word in ("gradient exchange", "weight update", "redundant compute*", "all links twice as fast", "repeated on"):
        assert word in text
    assert "?" not in text
    document = json.loads(run(f"explain {RESNET} --json --strategy", capsys, words=("data16",)))
    assert sum(document["phases_s"].values()) == pytest.approx(document["row"]["step_time_s"])
    assert set(document["doubling"]) == {"bandwidth", "compute", "batch", "bisection"}


def test_simulate_predicts_one_split(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(run(f"simulate {RESNET} --json --strategy", capsys, words=("data16",)))
    assert document["row"]["strategy"] == "data16"
    assert document["row"]["global_batch"] == 1024


def test_limits_print_and_are_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(f"limits {RESNET} --gpus 1..8 --set mode=data,filter", capsys)
    assert "useful GPUs" in text and "twice the" in text
    assert max(map(len, text.splitlines())) <= 80
    document = json.loads(run(f"limits {RESNET} --gpus 1..8 --set mode=data --json", capsys))
    assert [point["gpus"] for point in document["limits"][0]["curve"]] == [1, 2, 4, 8]
    assert document["limits"][0]["largest_useful_gpus"] == 8


def test_mixtures_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "explain vgg16 --cluster abci-v100 --global-batch 32/gpu"
    text = run(f"{arguments} --strategy", capsys, words=("data16, linear*: filter16",))
    assert "VGG-16: data16, linear*: filter16" in text and "layer-wise collectives*" in text
    document = json.loads(run(f"{arguments} --json --strategy", capsys, words=("data16, linear*: filter16",)))
    assert document["row"]["family"] == "mixture"
    assert "unknown operator of VGG-16" in run(f"{arguments} --strategy", capsys, code=2, words=("data4, fc: filter4",))


def test_paradl_is_asked_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "resnet.net").write_text(resnet50_net())
    words = (str(tmp_path / "resnet.net"), "--seconds-per-sample", "3.119502e-3", "--strategy")
    arguments = "explain --cluster abci-v100 --paradl --json --global-batch"
    # Published seconds per epoch of 1.28 million images over 5,000 and 20,000 steps.
    data = json.loads(run(f"{arguments} 256", capsys, words=(*words, "data4")))["paradl"]
    assert data["compute_s"] * 5000 == pytest.approx(998.24064)
    assert data["communication_s"] * 5000 == pytest.approx(13.9104096)
    split = json.loads(run(f"{arguments} 64", capsys, words=(*words, "filter4")))["paradl"]
    assert split["compute_s"] * 20000 == pytest.approx(1150.44474057)
    assert split["communication_s"] * 20000 == pytest.approx(2175.1573824)
    text = run(f"simulate {RESNET} --paradl --strategy", capsys, words=("data16",))
    assert "ParaDL's formulas: step" in text
    for other in ("pipeline4 segments4", "data16 mixed", "data4 filter2", "data8, linear*: filter8"):
        assert "ParaDL has " in run(f"explain {RESNET} --paradl --strategy", capsys, code=2, words=(other,))


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


def test_the_page_of_limits_loads_nothing_and_shows_every_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "limits.html"
    run(f"limits {RESNET} --gpus 1..8 --report", capsys, words=(str(page),))
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert "<script" not in text and "http://" not in text and "https://" not in text
    assert text.count("<svg") == 3
    for family in ("data", "data+spatial", "filter", "pipeline"):
        assert f">{family}</text>" in text
    assert "nan" not in text.split("</style>")[1].replace("finance", "")
    assert "is a folder" in run(f"limits {RESNET} --gpus 1..8 --report", capsys, code=2, words=(str(tmp_path),))


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (f"explain {RESNET} --strategy", ("data4 spatial4x4x4",), "has 3 axes, but the input of ResNet-50 has 2"),
        (f"explain {RESNET} --strategy", ("spatial300",), "300 parts do not fit an extent of 224"),
        (f"explain {RESNET} --strategy", ("filter65",), "filter65 needs 65 filters, but conv1 has 64"),
        (f"explain {RESNET} --strategy", ("tp4",), "unknown word of a split 'tp'"),
        (f"explain {RESNET} --gpus 8 --strategy", ("data4",), "occupies 4 GPUs, but --gpus asks for 8"),
        (f"explain {RESNET} --strategy", ("data8192",), "occupies 8192 GPUs, but abci-v100 has 4352"),
        (f"search {RESNET}", (), "add --gpus"),
        (f"search {RESNET} --gpus 4 --seq-len 128", (), "--seq-len is for transformers"),
        (f"search {RESNET} --gpus 4 --paradl", (), "--paradl is about one split"),
        (f"search {RESNET} --gpus 4 --baseline data4", (), "--baseline is for transformers"),
        (f"search {RESNET} --gpus 4 --train-within 3d", (), "--train-within is for transformers"),
        (f"search {RESNET} --gpus 4 --measure-next 3", (), "--measure-next is for transformers"),
        (f"simulate {RESNET} --strategy data4 --profile p.yaml", (), "--profile is for transformers"),
        (f"limits {RESNET} --gpus 4 --set mode=", (), "choices are written AXIS=CHOICE"),
        (f"search {RESNET} --gpus 4 --set tp=1", (), "write mode=data,filter"),
        (f"search {RESNET} --gpus 4 --set mode=fliter", (), "did you mean filter"),
        (f"search {RESNET} --gpus 4 --precision bf16", (), "has no bf16"),
        (f"search {RESNET} --gpus 4 --framework megatron-lm", (), "unknown framework for operator graphs"),
        (f"search {RESNET} --gpus 4 --objective speed", (), "unknown objective"),
        ("search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 64", (), "required: --seq-len"),
        (
            "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8/gpu --seq-len 64",
            (),
            "a batch per GPU is for",
        ),
        ("search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8/node --seq-len 64", (), "like 64/gpu"),
        ("limits llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8", (), "limits are for operator graphs"),
        ("search missing.onnx --cluster dgx-h100 --gpus 8 --global-batch 8", (), "missing.onnx: no such file"),
        (
            "compare resnet50 --cluster dgx-h100 --global-batch 8 --strategy a --strategy b",
            (),
            "unknown word of a split",
        ),
    ],
)
def test_wrong_requests_get_one_message(
    text: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in run(text, capsys, code=2, words=words)


def test_unknown_frameworks_and_devices_without_fp32_are_refused() -> None:
    with pytest.raises(RequestError, match="--precision"):
        resolve(Request(model="resnet50", cluster="gaudi2-box", gpus="8", global_batch=512))


def test_objectives_prices_and_optimizers() -> None:
    asked = Request(model="vgg16", cluster="abci-v100", global_batch=256, gpus="8", top=1000)
    roomy = search_request(resolve(dataclasses.replace(asked, objective="headroom"))).rows
    assert [row.peak_memory_gib for row in roomy] == sorted(row.peak_memory_gib for row in roomy)

    (priced,) = search_request(resolve(dataclasses.replace(asked, top=1, usd_per_gpu_hour=2.5))).rows
    line = priced.to_json()
    assert line["cost_usd_per_hour"] == 20.0
    assert line["cost_usd_per_million_samples"] == pytest.approx(20 / 3600 / priced.throughput * 1e6)

    held: dict[str, tuple[float, float]] = {}
    for name in ("sgd", "momentum", "adam"):
        chosen = resolve(dataclasses.replace(asked, optimizer=name))
        (row,) = split_rows(chosen.context, [parse_split("data8")], [256])
        held[name] = (row.memory_gib["optimizer"], row.breakdown_s["update"])
    parameters = 4 * load_graph_model("vgg16").parameters / 2**30
    assert [memory for memory, _ in held.values()] == pytest.approx([0, parameters, 2 * parameters])
    assert held["sgd"][1] < held["momentum"][1] < held["adam"][1]
    with pytest.raises(RequestError, match="unknown optimizer"):
        resolve(dataclasses.replace(asked, optimizer="lamb"))


def test_a_batch_that_does_not_fit_is_cut_into_as_few_segments_as_fit() -> None:
    """VGG-16 on 16 GB: 1024 images at once need three times that, and are accumulated."""
    request = Request(model="vgg16", cluster="abci-v100", global_batch=PerDevice(1024), gpus="8", top=1000)
    board = search_request(resolve(request))
    (data,) = [row for row in board.rows if row.strategy.family == "data"]
    assert data.fits and data.strategy.segments > 1
    context = resolve(request).context
    halved = dataclasses.replace(data.strategy, segments=data.strategy.segments // 2)
    (before,) = split_rows(context, [halved], [data.graph.global_batch])
    assert not before.fits
    assert board.space.legal == board.space.feasible + board.space.rejected["memory"]
