"""Switches of frameworks: data that agrees with profiles, files of users, and settings as text."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from forerun.simulator.costs import stream_operators
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import (
    FrameworkProfile,
    all_switches,
    framework_names,
    load_framework,
    parse_switches,
    resolve_framework,
    settings_text,
    switched,
)
from forerun.spaces.frameworks.schema import OPERATORS
from forerun.spaces.frameworks.switches import SHARE, of_release, with_settings

AXES = {"tp", "pp", "cp", "ep", "sp", "zero", "moe", "replicas", "eight_bit", "fp8"}


def test_every_switch_names_fields_settings_and_frameworks_that_exist() -> None:
    known = {field.name for field in fields(FrameworkProfile)} | {"eager+", "eager-"}
    for switch in all_switches().values():
        assert set(switch.needs) <= AXES, switch.name
        assert not switch.beside or switch.beside in all_switches(), switch.name
        assert not switch.share or switch.values["on"].keys() >= {switch.share}, switch.name
        assert len(switch.values) > 1 and switch.evidence and switch.title, switch.name
        for held in switch.requires.values():
            for other, needed in held.items():
                assert needed and set(needed) <= set(all_switches()[other].values), switch.name
        assert set(switch.hardware) <= set(switch.values), switch.name
        for name, support in switch.frameworks.items():
            assert name in framework_names(), (switch.name, name)
            if support is None:
                continue
            assert support.unset in switch.values, (switch.name, name)
            assert support.before is None or support.before in switch.values, (switch.name, name)
            assert set(support.flags) <= {*switch.values, *([SHARE] if switch.share else ())}, (switch.name, name)
            assert set(support.values) <= set(switch.values), (switch.name, name)
            for effect in (*switch.values.values(), *support.values.values()):
                assert set(effect) <= known, switch.name


@pytest.mark.parametrize("name", framework_names())
def test_a_profile_is_what_its_switches_say(name: str) -> None:
    profile = load_framework(name)
    assert with_settings(profile, dict(profile.switches)) == profile
    for switch, setting in profile.switches:
        assert all_switches()[switch].support(profile) is not None, f"{name} has {switch}, but the switch not {name}"
        assert setting in all_switches()[switch].values


@pytest.mark.parametrize("name", framework_names())
def test_every_setting_and_back_is_the_profile_again(name: str) -> None:
    profile = load_framework(name)
    for switch, setting in profile.switches:
        for other in all_switches()[switch].values:
            there = with_settings(profile, {switch: other})
            back = with_settings(there, {switch: setting})
            assert set(back.eager) == set(profile.eager)
            assert replace(back, eager=profile.eager) == profile, (switch, other)
            if other != setting and all_switches()[switch].values[other] != all_switches()[switch].values[setting]:
                assert replace(there, switches=profile.switches) != profile, (switch, other)


def test_settings_are_read_as_they_are_written() -> None:
    read = parse_switches(["tp-comm-overlap, bf16-grads=off", "dispatcher=alltoall"], ["moe-overlap"])
    assert read == {"tp-comm-overlap": "on", "bf16-grads": "off", "dispatcher": "alltoall", "moe-overlap": "off"}
    assert parse_switches([settings_text(read)]) == read


@pytest.mark.parametrize(
    ("wanted", "without", "message"),
    [
        (["tp-comm-overlp"], [], "did you mean tp-comm-overlap"),
        (["dispatcher"], [], "dispatcher is one of allgather, alltoall, deepep, hybridep, but got 'on'"),
        (["bf16-grads"], ["bf16-grads"], "set twice"),
        ([""], [], "NAME or NAME=SETTING"),
        ([], ["bf16-grads=on"], "NAME or NAME=SETTING"),
    ],
)
def test_settings_that_cannot_be_read(wanted: list[str], without: list[str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        parse_switches(wanted, without)


def test_a_switch_that_a_framework_lacks_is_refused_with_those_that_have_it() -> None:
    with pytest.raises(RequestError, match=r"megatron-lm 0.20 has no switch compile, which is one of torchtitan"):
        switched(load_framework("megatron-lm"), {"compile": "on"})
    with pytest.raises(RequestError, match="overlap-param-gather=on requires overlap-grad-reduce=on"):
        switched(load_framework("megatron-lm"), {"overlap-grad-reduce": "off"})


def test_earlier_releases_lack_what_came_later() -> None:
    early = load_framework("megatron-lm@0.7")
    assert early.version == "0.7"
    assert not {"dispatcher", "moe-overlap", "bf16-grads", "moments"} & dict(early.switches).keys()
    assert not early.dispatches_once
    assert early.overlap_parameters == load_framework("megatron-lm").overlap_parameters
    assert of_release(load_framework("megatron-lm"), "0.20") == load_framework("megatron-lm")
    with pytest.raises(RequestError, match=r"a number like 0.16"):
        load_framework("megatron-lm@core")


def test_a_file_states_in_what_it_differs(tmp_path: Path) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text(
        'like: megatron-lm\nversion: "0.10"\nswitches: {tp-comm-overlap: on}\noverlap_tensor: 0.4\n'
        "legality: {zero_stages: [0, 1, 2]}\n"
    )
    ours, base = resolve_framework(str(file)), load_framework("megatron-lm")
    assert (ours.name, ours.lineage, ours.version) == ("ours", ("ours", "megatron-lm"), "0.10")
    assert ours.overlap_tensor == 0.4 and dict(ours.switches)["tp-comm-overlap"] == "on"
    assert ours.legality == replace(base.legality, zero_stages=(0, 1, 2))
    assert not ours.dispatches_once, "0.10 has no DeepEP"
    assert switched(ours, {"bf16-grads": "on"}).gradient_bytes == 2.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: x\n", "a mapping with `like: NAME`"),
        ("like: megatron\n", "did you mean megatron-lm"),
        ("like: nemo\noverlap_tensr: 0.5\n", "line 2, overlap_tensr: unknown key; did you mean overlap_tensor"),
        ("like: nemo\noverlap_tensor: 50\n", "overlap_tensor: this must be at most 1, but got 50"),
        ("like: nemo\ngradient_bytes: -1\n", "this must be at least 0, but got -1"),
        ("like: nemo\nfused_experts: 1\n", "this must be true or false, but got 1"),
        ("like: nemo\nswitches: {dispatchr: deepep}\n", "did you mean dispatcher"),
        (
            "like: nemo\nswitches: {dispatcher: on}\n",
            "this must be .allgather., .alltoall., .deepep. or .hybridep., but got",
        ),
        ("like: nemo\nversion: 0.10\n", "version: this must be a text, but got 0.1"),
        ("like: nemo\nlegality: {schedules: [[1f1b]]}\n", "schedules.0: this must be"),
        ("like: nemo\nlegality: {zero_stages: [-0.0]}\n", "zero_stages.0: this must be a whole number"),
        ("like: nemo\neager: [gelu, gellu]\n", "eager.1: this must be"),
        ("like: nemo\nattention: flash9\n", "attention: this must be"),
        ("like: nemo\nhost_step_s: 1e99\n", "this must be at most 3600"),
        ("like: nemo\nlegality: {zero_stage: [0]}\n", "did you mean zero_stages"),
    ],
)
def test_files_that_say_something_else_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "ours.yaml"
    file.write_text(text)
    with pytest.raises(RequestError, match=message):
        resolve_framework(str(file))


def test_a_file_may_name_any_operator_that_is_bound_by_memory() -> None:
    assert set(OPERATORS) == set(stream_operators())


def test_a_setting_brings_what_it_needs_where_there_is_one_choice() -> None:
    profile = switched(load_framework("megatron-lm"), {"chunked-loss": "on"})
    assert dict(profile.switches)["cross-entropy-fusion"] == "on"
    with pytest.raises(RequestError, match="chunked-loss=on requires cross-entropy-fusion=on"):
        switched(load_framework("megatron-lm"), {"chunked-loss": "on", "cross-entropy-fusion": "off"})
    with pytest.raises(RequestError, match="moments=bf16 requires master-weights=remainders or"):
        switched(load_framework("megatron-lm"), {"moments": "bf16"})


def test_shares_are_settings_of_switches_that_have_them() -> None:
    read = parse_switches(["optimizer-offload=.5,activation-offload=1.0"])
    assert read == {"optimizer-offload": "0.5", "activation-offload": "on"}
    profile = switched(load_framework("megatron-lm"), read)
    assert (profile.optimizer_on_host, profile.activations_on_host) == (0.5, 1.0)
    with pytest.raises(RequestError, match=r"is one of off, on or a number between 0 and 1, but got '1\.5'"):
        parse_switches(["optimizer-offload=1.5"])
    with pytest.raises(RequestError, match=r"optimizer-offload=0\.5 requires optimizer=adam"):
        switched(load_framework("generic"), {"optimizer-offload": "0.5", "optimizer": "muon"})
    with pytest.raises(RequestError, match=r"0\.16 has no activation-offload=0\.5, which came with 0\.19"):
        switched(load_framework("megatron-lm@0.16"), {"activation-offload": "0.5"})


@pytest.mark.parametrize(("release", "kept"), [("0.11", True), ("0.12", False)])
def test_outputs_of_experts_are_kept_before_their_activation_was_weighted(release: str, kept: bool) -> None:
    assert of_release(load_framework("megatron-lm"), release).keeps_expert_outputs == kept
    assert not load_framework("nemo").keeps_expert_outputs
