"""What a search says of how well predictions like its own met measured runs."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from forerun.search import Leaderboard
from forerun.search.answer.evidence import entry_of, evidence_of, figures
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.validated_runs import checked_note, narrowing_note
from forerun.search.answer.searches import explore_request, search_request
from forerun.search.board.evidence import DEVICE, FRAMEWORK, FRAMEWORK_THERE, KIND, NOTHING
from forerun.search.board.rows import Row
from forerun.search.explore.samplers import Exploring
from forerun.search.measured.intervals import error_interval
from forerun.search.measured.intervals.kriging import group_contexts
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import parse_strategy


def row(gpus: int = 8) -> Row:
    """A row of so many devices that computes most of the time."""
    shares = {"compute": 0.8, "recompute": 0.0, "data": 0.2}
    made: Row = SimpleNamespace(  # type: ignore[assignment]
        gpus=gpus, breakdown_s=shares, strategy=parse_strategy("dp8"), range_text="-20..+30%",
        step_time_s=1.0, step_time_low_s=0.8, step_time_high_s=1.3,
    )  # fmt: skip
    return made


def setting(model: str, cluster: str, framework: str, precision: str | None = None) -> Setting:
    asked = Request(model=model, cluster=cluster, gpus="8", global_batch=64, seq_len=2048, framework=framework)
    return resolve(asked if precision is None else dataclasses.replace(asked, precision=precision))


def test_every_entry_is_of_known_names_and_has_enough_runs() -> None:
    from forerun.spaces.clusters import device_names
    from forerun.spaces.frameworks import framework_names

    keys = [(entry["device"], entry["framework"], entry["experts"]) for entry in figures()["entries"]]
    assert len(set(keys)) == len(keys)
    assert {device for device, _, _ in keys} <= {*device_names(), None}
    assert {framework for _, framework, _ in keys} <= {*framework_names(), None}
    assert all(entry["rows"] >= 1 and entry["gpus"] >= 1 for entry in figures()["entries"])


@pytest.mark.parametrize(
    ("model", "cluster", "framework", "level", "text"),
    [
        ("llama3-8b", "dgx-a100-80", "megatron-lm", KIND, "{rows} of dense models on a100-sxm4-80 with megatron-lm"),
        (
            "mixtral-8x7b", "dgx-h100", "nanotron", FRAMEWORK_THERE,
            "no measured run of models with experts on h100-sxm with nanotron; {rows} of dense models there",
        ),
        (
            "llama3-8b", "dgx-a100-80", "generic", DEVICE,
            "no measured run on a100-sxm4-80 with generic; {rows} there with other frameworks",
        ),
        (
            "llama3-8b", "gaudi3-box", "deepspeed", FRAMEWORK,
            "no measured run on gaudi3; {rows} with deepspeed elsewhere",
        ),
        ("llama3-8b", "gaudi3-box", "generic", NOTHING, "no measured run on gaudi3 or with generic"),
    ],
)  # fmt: skip
def test_the_nearest_runs_are_named(model: str, cluster: str, framework: str, level: str, text: str) -> None:
    evidence = evidence_of(setting(model, cluster, framework).context)
    assert evidence.level == level
    assert evidence.text == text.format(rows=f"{evidence.runs:,} measured runs")
    assert evidence.near == (level in (KIND, FRAMEWORK_THERE))
    assert evidence.source.startswith("from ") == (level == KIND)


def test_runs_of_the_framework_on_other_devices_are_named() -> None:
    evidence = evidence_of(setting("llama3-8b", "dgx-h100", "torchtitan").context)
    rows = [
        entry["rows"]
        for entry in figures()["entries"]
        if entry["framework"] == "torchtitan" and entry["device"] and entry["experts"] is None
    ]
    assert evidence.level == DEVICE
    assert f"{sum(rows):,} with torchtitan on other devices ({max(rows):,} on h100-sxm-500w)" in evidence.text


@pytest.mark.parametrize(("model", "experts"), [("llama3-8b", False), ("mixtral-8x7b", True)])
def test_runs_of_a_framework_on_a_device_are_evidence_of_it_there(model: str, experts: bool) -> None:
    from forerun.spaces.clusters import load_device
    from forerun.spaces.frameworks import load_framework

    context = setting(model, "dgx-h100", "nemo").context
    for entry in figures()["entries"]:
        if None in (entry["device"], entry["framework"]) or entry["experts"] is not experts:
            continue
        cluster = dataclasses.replace(context.cluster, device=load_device(entry["device"]))
        there = dataclasses.replace(context, cluster=cluster, framework=load_framework(entry["framework"]))
        assert (evidence_of(there).level, evidence_of(there).runs) == (KIND, entry["rows"])


def test_frameworks_like_another_have_its_runs_where_they_have_none() -> None:
    from forerun.spaces.frameworks import load_framework

    context = setting("llama3-8b", "dgx-b200", "nemo").context
    alike = dataclasses.replace(context, framework=load_framework("nemo-blackwell"))
    assert evidence_of(alike) == evidence_of(context)


def test_groups_of_nodes_have_the_evidence_of_the_group_with_the_least(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("groups: [{cluster: dgx-a100-80, devices: 8}, {cluster: hgx-h200, devices: 8}]")
    asked = Request(
        model="llama3-8b", cluster=str(tmp_path / "g.yaml"), gpus="16", global_batch=64, seq_len=2048,
        framework="deepspeed",
    )  # fmt: skip
    both = resolve(asked, groups=True).context
    evidence = evidence_of(both)
    assert not evidence.near
    assert evidence.text.startswith("no measured run on groups of nodes that differ; no measured run on h200-sxm with")
    strategy, busy = [parse_strategy("dp16")], np.array([0.8])
    whole, *parts = (error_interval(one, strategy, busy) for one in (both, *group_contexts(both)))
    assert whole.low[0] == min(part.low[0] for part in parts)
    assert whole.high[0] == max(part.high[0] for part in parts)


def test_precisions_that_no_run_had_are_named() -> None:
    assert evidence_of(setting("llama3-8b", "dgx-a100-80", "megatron-lm", "tf32").context).text.endswith(
        ", none in tf32"
    )


def test_runs_without_a_measured_peak_are_named_as_such() -> None:
    assert evidence_of(setting("llama2-7b", "ascend-910b-box", "mindspeed").context).text.endswith(
        " of dense models on ascend-910b with mindspeed, none with a measured peak of memory"
    )
    assert "peak" not in evidence_of(setting("llama3-8b", "dgx-a100-80", "megatron-lm").context).text


def test_the_note_says_how_well_predictions_met_the_nearest_runs() -> None:
    here = setting("llama3-8b", "dgx-a100-80", "megatron-lm")
    (note,) = checked_note(here, (row(),), NoteSearch())
    assert note.startswith(evidence_of(here.context).text)
    assert f"median error {evidence_of(here.context).figures['median_pct']:.1f}%" in note
    (note,) = checked_note(setting("nemotron-h-8b", "dgx-a100-80", "megatron-lm"), (row(),), NoteSearch())
    assert note.endswith("; none with Mamba-2")


def test_what_stands_above_the_leaderboard_is_not_said_again() -> None:
    assert checked_note(setting("llama3-8b", "gaudi3-box", "generic"), (row(),), NoteSearch()) == ()
    elsewhere = setting("llama3-8b", "gaudi3-box", "deepspeed")
    (note,) = checked_note(elsewhere, (row(),), NoteSearch())
    assert "no measured run" not in note
    assert f"median error {evidence_of(elsewhere.context).figures['median_pct']:.1f}%" in note


def test_what_narrows_the_range_is_offered_where_no_such_run_was_measured() -> None:
    assert narrowing_note(setting("llama3-8b", "dgx-a100-80", "megatron-lm"), (row(),), NoteSearch()) == ()
    (note,) = narrowing_note(setting("llama3-8b", "gaudi3-box", "deepspeed"), (row(),), NoteSearch())
    assert note.startswith("the 80% range of -20..+30% is narrowed most by 3 measured runs")
    assert "forerun profile" not in note  # it runs where PyTorch sees CUDA or ROCm
    assert (
        "forerun profile" in narrowing_note(setting("llama3-8b", "rtx4090-box", "generic"), (row(),), NoteSearch())[0]
    )


def test_more_devices_than_any_run_had_are_said() -> None:
    exact = entry_of("h100-sxm", "nanotron", experts=False)
    assert exact is not None
    here = setting("llama3-8b", "dgx-h100", "nanotron")
    assert "the largest" not in checked_note(here, (row(2 * exact["gpus"]),), NoteSearch())[0]
    assert (
        f"; the largest had {exact['gpus']} GPUs" in checked_note(here, (row(2 * exact["gpus"] + 1),), NoteSearch())[0]
    )


def test_calibrated_requests_speak_by_their_intervals() -> None:
    here = setting("llama3-8b", "dgx-h100", "nanotron")
    corrected = dataclasses.replace(here.context, correction=object())  # type: ignore[arg-type]
    assert checked_note(dataclasses.replace(here, context=corrected), (row(),), NoteSearch()) == ()
    assert narrowing_note(dataclasses.replace(here, context=corrected), (row(),), NoteSearch()) == ()


REQUEST = Request(model="qwen3-0.6b", cluster="dgx-h100", gpus="8", global_batch=64, seq_len=2048)


@pytest.mark.parametrize(
    "run", [search_request, lambda request: explore_request(request, exploring=Exploring(evaluations=20))]
)
def test_a_search_says_it(run: Callable[[Request], Leaderboard]) -> None:
    assert sum(" measured runs" in note for note in run(REQUEST).notes) == 1
