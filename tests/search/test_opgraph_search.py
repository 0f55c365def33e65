"""Searching, explaining and limits of operator graphs: order, counts, phases, laws and the command line."""

import dataclasses
from types import SimpleNamespace

import pytest
from graph_requests import setting
from split_cases import split_rows

from forerun.search.answer.searches import explore_request, search_request
from forerun.search.api import explain, search
from forerun.search.explore.flat import slicing
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.workers import Choice
from forerun.simulator.opgraph.space import splits_over
from forerun.spaces.errors import InfeasibleError, RequestError
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.limits import broken_laws
from forerun.spaces.opgraph.split import Mode, parse_split


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_workers_find_what_one_process_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slicing, "PATIENCE_S", -1.0)
    monkeypatch.setattr(slicing, "WORTH_S", -1.0)
    monkeypatch.setattr(slicing, "kind_of", lambda _: SimpleNamespace(first=4))
    asked = setting("alexnet", gpus="4..8")
    alone = search_request(asked)
    shared = search_request(asked, workers=Choice(kind="processes", count=2))
    assert "in 2 processes" in shared.workers
    assert (shared.rows, shared.families, shared.space) == (alone.rows, alone.families, alone.space)


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
