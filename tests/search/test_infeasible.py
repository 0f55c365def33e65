"""When nothing is feasible, the changes that are named do help."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from forerun.search import search
from forerun.search.answer.diagnosis.diagnosis import NothingFeasible
from forerun.search.cli import main
from forerun.search.explore.trees.hosted import best_hosted
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import MEMORY_PARTS, score
from forerun.simulator.events.trees import simulate_tree
from forerun.spaces.errors import InfeasibleError, RequestError
from forerun.spaces.frameworks import framework_names, load_framework
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.strategies.software import running
from forerun.spaces.trees import legal_tree, model_layers, resolve_tree
from forerun.spaces.trees.document import parse_tree
from forerun.spaces.trees.values import HOST_TENSORS

TRAINING: dict[str, Any] = {"cluster": "dgx-h100", "global_batch": 64, "seq_len": 4096}


def fail(model: str, **fields: Any) -> NothingFeasible:
    with pytest.raises(InfeasibleError) as caught:
        search(model, **{**TRAINING, **fields})
    assert isinstance(caught.value, NothingFeasible)
    return caught.value


def test_too_few_gpus() -> None:
    error = fail("llama3-70b", gpus=8)
    diagnosis = error.diagnosis

    assert error.exit_code == 3
    assert diagnosis.blockers[0] == ("memory", diagnosis.legal)
    assert diagnosis.closest is not None and not diagnosis.closest.fits
    assert f"{diagnosis.closest.excess_gib:.1f} GiB more than the" in str(error)
    more = next(fix for fix in diagnosis.fixes if "more GPUs" in fix.change)
    assert more.row.fits
    assert search("llama3-70b", gpus=more.row.gpus, **TRAINING).rows[0] is not None
    assert f"{more.row.gpus - 8} more GPUs ({more.row.gpus})" == more.change
    assert set(error.document["infeasible"]) == {"blockers", "closest", "excess_gib", "changes"}
    assert error.document["infeasible"]["excess_gib"] > 0
    assert error.document["leaderboard"] == [] and error.document["space"]["feasible"] == 0


def test_a_switch_that_makes_room_is_named() -> None:
    request = {"cluster": "rtx4090-box", "global_batch": 64, "seq_len": 4096, "framework": "fsdp", "gpus": 8}
    fix = next(one for one in fail("qwen2.5-7b", **request).diagnosis.fixes if one.change.startswith("--with "))
    name = fix.change.removeprefix("--with ").split(" ")[0]
    assert fix.row.step_time_s >= search("qwen2.5-7b", **request, switches={name: "on"}).rows[0].step_time_s


def test_a_release_that_lacks_a_switch_is_offered_others() -> None:
    request = {"cluster": "dgx-h100", "global_batch": 8, "seq_len": 2**20, "framework": "megatron-lm@0.10", "gpus": 8}
    changes = [fix.change for fix in fail("llama3-8b", **request).diagnosis.fixes]

    assert changes and not [change for change in changes if change.startswith("--with activation-offload")]


@pytest.mark.parametrize(
    "command",
    [
        "search qwen2.5-7b --cluster rtx4090-box --gpus 8 --global-batch 64 --seq-len 4096 --framework fsdp",
        pytest.param(
            "search qwen3-14b --cluster rtx4090-box --gpus 8 --global-batch 64 --seq-len 2048 --framework fsdp",
            marks=pytest.mark.slow,
        ),
        "search llama3-70b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096 --framework deepspeed",
    ],
)
def test_the_flags_that_are_named_lead_to_a_launch(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 3
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Next: ")]
    flags = line.removeprefix("Next: the same search with ").split()

    assert main([*command.split(), *flags, "--out", str(tmp_path / "run")]) == 0
    assert main(["export", str(tmp_path / "run"), "--rank", "1", "--format", "all", "--out", str(tmp_path / "to")]) == 0
    assert list((tmp_path / "to").glob("*/launch.sh"))


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["megatron-lm", "torchtitan"])
def test_optimizer_states_may_lie_in_host_memory(framework: str) -> None:
    """What is proposed is a tree that fits, and simulates to what is said of it."""
    request = {"cluster": "dgx-a100-40", "global_batch": 16, "seq_len": 4096}
    error = fail("llama2-13b", gpus=4, framework=framework, **request)
    fix = next(r for r in error.diagnosis.fixes if "in host memory" in r.change)
    setting = resolve(Request(model="llama2-13b", gpus="4", framework=framework, **request))
    start = fix.tree.splitlines()[0].removeprefix("# llama2-13b: ")
    context = running(setting.context, parse_strategy(start).software)

    assert fix.row.fits and fix.row.gpus == 4
    assert context.framework.host_setting in fix.change
    strategies = legal_tree(context, resolve_tree(parse_tree(fix.tree), model_layers(context.model)))
    scores = simulate_tree(context, strategies).scores
    assert float(scores.step_time_s[0]) == pytest.approx(fix.row.step_time_s, rel=1e-12)
    assert "--json contains it" in str(error)
    assert [change.get("tree") for change in error.document["infeasible"]["changes"]].count(fix.tree) == 1

    hosts = {**context.cluster.host, "memory_bytes": 1e9}
    small = dataclasses.replace(context, cluster=dataclasses.replace(context.cluster, host=hosts))
    assert best_hosted(dataclasses.replace(setting, context=small), score) is None


def test_frameworks_say_how_tensors_come_to_lie_on_the_host() -> None:
    for profile in map(load_framework, framework_names()):
        assert set(profile.host_tensors) <= set(HOST_TENSORS) & set(MEMORY_PARTS), profile.name
        assert bool(profile.host_tensors) == bool(profile.host_setting), profile.name


@pytest.mark.slow
def test_a_jump_in_gpus_is_narrowed_down() -> None:
    few = {"vpp": ["1"], "cp": ["1"], "mbs": ["1"]}
    more = next(r for r in fail("gpt3-175b", gpus=8, overrides=few).diagnosis.fixes if "more GPUs" in r.change)

    assert more.row.gpus > 8 * 4  # beyond the next nodes, which are tried one by one
    fail("gpt3-175b", gpus=more.row.gpus - 8, overrides=few)


def test_the_closest_misses_by_least() -> None:
    few = {"pp": ["1"], "tp": ["8"]}
    closest = fail("llama3-70b", gpus=8, overrides=few).diagnosis.closest
    setting = resolve(Request(model="llama3-70b", gpus="8", overrides=few, **TRAINING))
    scores = score(setting.context, (space := setting.space()).table(0, space.size)[0])

    assert closest is not None
    assert closest.peak_memory_gib * 2**30 == pytest.approx(scores.peak_memory_bytes.min())


def test_a_restriction_that_blocks_is_named() -> None:
    own = {"tp": ["1"], "mbs": ["1"], "pp": ["1"], "recompute": ["none"]}
    diagnosis = fail("llama3-70b", gpus=64, overrides=own).diagnosis

    assert len(diagnosis.fixes) == 1
    freed = diagnosis.fixes[0].change.removeprefix("do not restrict ").split(" and ")
    rest = {axis: values for axis, values in own.items() if axis not in freed}
    assert search("llama3-70b", gpus=64, overrides=rest, **TRAINING).space.feasible > 0
    if len(freed) > 1:
        for axis in freed:
            fail("llama3-70b", gpus=64, overrides={a: v for a, v in own.items() if a != axis})


def test_no_legal_candidate_quotes_the_law() -> None:
    error = fail("llama3-8b", gpus=256, global_batch=7, framework="fsdp")

    assert error.diagnosis.legal == 0
    assert "global batch 7 is not divisible by dp*mbs" in str(error)
    batch = next(fix for fix in error.diagnosis.fixes if fix.change.startswith("--global-batch"))
    count = int(batch.change.split()[1])
    fields = {**TRAINING, "global_batch": count}
    assert search("llama3-8b", gpus=256, framework="fsdp", **fields).space.feasible > 0


def test_own_restrictions_without_a_legal_candidate_are_a_wrong_request() -> None:
    with pytest.raises(RequestError, match="32 heads are not divisible by tp=3; use 1, 2, 4") as caught:
        search("llama3-8b", gpus=48, overrides={"tp": ["3"]}, **TRAINING)

    assert "do not restrict tp" in str(caught.value)
