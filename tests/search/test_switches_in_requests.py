"""Switches in requests: what they change, what is told, and the same from every door."""

import dataclasses
import json
from pathlib import Path

import pytest

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.switched import switches_note
from forerun.search.answer.searches import search_request
from forerun.search.board.folder import write_folder
from forerun.search.catalogue.facts import describe
from forerun.search.formats.exporting import load_launch
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.sweep.plan import read_plan
from forerun.spaces.clusters.cluster import NodeGroup
from forerun.spaces.errors import RequestError

MIXTURE = {"model": "qwen3-30b-a3b", "cluster": "dgx-h100", "global_batch": 256, "seq_len": 4096, "gpus": "64"}
ONE = {"tp": [1], "pp": [1], "cp": [1], "ep": [64], "etp": [1], "mbs": [1], "zero": [1], "recompute": ["full"]}


def step_s(**switches: str) -> float:
    named = {name.replace("_", "-"): setting for name, setting in switches.items()}
    return search_request(Request(**MIXTURE, overrides=ONE, switches=named)).rows[0].step_time_s


@pytest.mark.slow
def test_switches_change_the_prediction_as_they_should() -> None:
    default = step_s()
    assert step_s(dispatcher="deepep") == default
    assert step_s(dispatcher="alltoall") > 1.05 * default
    assert step_s(moe_overlap="on") < default
    assert step_s(bf16_grads="on") < default


def test_what_was_assumed_is_told_and_what_was_asked_for_is_not() -> None:
    told = "; ".join(resolve(Request(**MIXTURE)).defaults)
    assert "switches overlap-grad-reduce, overlap-param-gather, dispatcher=deepep" in told
    asked = "; ".join(resolve(Request(**MIXTURE, switches={"dispatcher": "alltoall"})).defaults)
    assert "dispatcher" not in asked and "overlap-grad-reduce" in asked
    dense = "; ".join(resolve(Request(**{**MIXTURE, "model": "llama3-8b"})).defaults)
    assert "dispatcher" not in dense


def test_the_json_of_a_request_has_every_setting() -> None:
    document = resolve(Request(**MIXTURE, switches={"dispatcher": "alltoall"})).to_json()
    assert document["switches"]["dispatcher"] == "alltoall"
    assert document["switches"]["overlap-grad-reduce"] == "on"
    again = resolve(Request(**MIXTURE, switches=document["switches"]))
    assert again.context == resolve(Request(**MIXTURE, switches={"dispatcher": "alltoall"})).context


def test_a_launch_has_the_software_that_was_predicted(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text("like: megatron-lm\nswitches: {dispatcher: alltoall}\n")
    request = Request(**MIXTURE, overrides=ONE, framework=str(file), switches={"bf16-grads": "on"})
    (tmp_path / "run").mkdir()
    write_folder(tmp_path / "run", search_request(request))
    _, context = load_launch(tmp_path / "run", 1)
    assert context.framework == resolve(request).context.framework


def test_a_sweep_has_switches_for_all_of_its_searches(tmp_path: Path) -> None:
    document = {
        "models": "qwen3-30b-a3b",
        "clusters": "dgx-h100",
        "workloads": [{"global_batch": 256, "seq_len": 4096}],
        "budgets": [{"gpus": 64}],
        "frameworks": ["megatron-lm", "nemo"],
        "switches": {"dispatcher": "alltoall", "bf16-grads": False},
    }
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(document))
    requests = [piece.request for piece in read_plan(file).pieces]
    assert [dict(request.switches) for request in requests] == [{"dispatcher": "alltoall", "bf16-grads": "off"}] * 2
    file.write_text(json.dumps(document | {"frameworks": "internevo"}))
    with pytest.raises(RequestError, match=r"internevo has no switch (dispatcher|bf16-grads)"):
        read_plan(file)


def test_show_lists_switches_with_settings_and_flags() -> None:
    kind, facts = describe("megatron-lm")
    assert kind == "framework"
    dispatcher = facts["switches"]["dispatcher"]
    assert dispatcher["setting"] == "deepep"
    assert "--moe-flex-dispatcher-backend deepep" in dispatcher["flags"]["deepep"]
    assert "mixed_precision.grad_reduce_in_fp32=false" in describe("nemo")[1]["switches"]["bf16-grads"]["flags"]["on"]


def test_the_gain_of_a_switch_is_of_one_level_of_fidelity() -> None:
    """Rows of groups were simulated event by event, which is no measure of what closed forms gain."""
    setting = resolve(Request(**MIXTURE, overrides=ONE))
    (row,) = search_request(Request(**MIXTURE, overrides=ONE, top=1)).rows
    slower = dataclasses.replace(row, step_time_s=1.1 * row.step_time_s)
    groups = dataclasses.replace(
        setting.context.cluster, groups=(NodeGroup(cluster=setting.context.cluster, devices=64),)
    )
    grouped = dataclasses.replace(setting, context=dataclasses.replace(setting.context, cluster=groups))
    assert switches_note(grouped, (slower,), NoteSearch()) == switches_note(setting, (row,), NoteSearch()) != ()


def test_switches_that_would_help_are_proposed_with_their_flags() -> None:
    def note(**switches: str) -> str:
        request = Request(**MIXTURE, overrides=ONE, switches=switches)
        return "".join(text for text in search_request(request).advice if "switches that speed up row 1" in text)

    told = note()
    assert "cuda-graphs=full +" in told and "--cuda-graph-impl local" in told
    assert "--moe-flex-dispatcher-backend hybridep" in told, "a graph of the step needs it, and brings it"
    assert "moe-overlap" not in told, "the search turns it on where Megatron-LM runs it"
    assert "bf16-grads" not in told, "it trains otherwise"
    assert "hybridep" not in note(dispatcher="alltoall"), "the user chose it"
    assert "cuda-graphs" not in note(**{"cuda-graphs": "full"})
