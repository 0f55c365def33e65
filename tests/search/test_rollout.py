"""Trainer and engines on one cluster: both ways to share the GPUs, by hand."""

import json
from dataclasses import replace
from functools import cache

import pytest

from forerun.search import search
from forerun.search.cli import main
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import of_transformer
from forerun.search.rollout import Rollout, RolloutPlacement, place
from forerun.search.rollout.placing import _reload_s
from forerun.simulator.costs.host import host_link_rate
from forerun.spaces.errors import RequestError

REQUEST = Request(
    model="qwen3-4b",
    cluster="dgx-h100",
    gpus="4",
    global_batch=64,
    seq_len=4096,
    overrides={"cp": [1], "tp": [1, 2], "mbs": [1, 2]},
)


@cache
def placed(rate: float = 2000.0, response: float = 1000.0, forwards: int = 1) -> tuple[RolloutPlacement, ...]:
    return place(REQUEST, Rollout(tokens_per_s=rate, response=response, forwards=forwards))


def test_every_share_of_the_gpus_is_looked_at_and_the_fastest_is_first() -> None:
    found = placed()
    shares = {(one.train_gpus, one.rollout_gpus) for one in found}
    assert {(2, 2), (4, 4)} <= shares <= {(1, 3), (2, 2), (3, 1), (4, 4)}
    assert [one.step_time_s for one in found] == sorted(one.step_time_s for one in found)
    assert [one.together for one in found].count(True) == 1


def test_whoever_stops_it_gets_what_was_found() -> None:
    seen: list[tuple[int, int]] = []

    def told(task: str, done: int, of: int, note: str) -> None:
        seen.append((done, of))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(EndedEarly) as stopped:
        place(REQUEST, Rollout(tokens_per_s=2000.0, response=1000.0, forwards=1), told)
    assert seen == [(0, 4), (1, 4), (2, 4)]
    assert stopped.value.exit_code == 130
    assert {one.train_gpus for one in stopped.value.found} <= {4, 3} and stopped.value.found


def test_the_parts_of_a_step_are_those_of_the_trainer_and_of_the_stated_rate() -> None:
    one = next(one for one in placed() if one.together)
    best = search("qwen3-4b", **{**vars_of(REQUEST), "gpus": 4}, top=1).rows[0]
    assert one.train_s == best.step_time_s
    assert one.generate_s == pytest.approx(64 * 1000 / (2000 * 4))
    assert one.forward_s == pytest.approx(one.train_s / 3)
    assert one.step_time_s == pytest.approx(one.generate_s + one.forward_s + one.train_s + one.weights_s)


def vars_of(request: Request) -> dict[str, object]:
    return {name: getattr(request, name) for name in ("cluster", "global_batch", "seq_len", "overrides")}


def test_apart_the_longer_side_sets_the_pace() -> None:
    for one in placed():
        if not one.together:
            longer = max(one.generate_s, one.forward_s + one.train_s)
            assert one.step_time_s == pytest.approx(longer + one.weights_s)
            assert 0 <= one.idle_share < 1


def test_states_that_leave_no_room_for_an_engine_are_reloaded_once_a_step() -> None:
    one = next(one for one in placed() if one.together)
    assert one.reload_s == 0.0  # 4B on H100s: both fit
    context, row = of_transformer(resolve(REQUEST)).context, one.row
    full = replace(row, memory_gib={**row.memory_gib, "optimizer": 50.0})
    states = 2**30 * (50.0 + row.memory_gib["parameters"])
    assert _reload_s(context, full) == pytest.approx(2 * states / host_link_rate(context.cluster))
    loaded = replace(one, reload_s=3.0)
    assert loaded.step_time_s == pytest.approx(one.step_time_s + 3.0)


def test_slow_engines_get_all_gpus() -> None:
    assert placed(rate=20.0)[0].together


def test_without_forward_passes_there_are_none() -> None:
    assert {one.forward_s for one in placed(forwards=0)} == {0.0}


@pytest.mark.parametrize(
    ("rollout", "told"),
    [
        ({"tokens_per_s": 0.0, "response": 10.0}, "generates 0.001 to 1e[+]09 tokens per second"),
        ({"tokens_per_s": 10.0, "response": 0.0}, "a response has 1 to"),
        ({"tokens_per_s": 10.0, "response": 10.0, "forwards": 99}, "0 to 16"),
    ],
)
def test_wrong_facts_are_refused(rollout: dict[str, float], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        Rollout(**rollout)  # type: ignore[arg-type]


def test_a_range_of_gpus_and_long_responses_are_refused() -> None:
    with pytest.raises(RequestError, match="give --gpus N"):
        place(replace(REQUEST, gpus="4..8"), Rollout(tokens_per_s=1.0, response=10.0))
    with pytest.raises(RequestError, match="longer than sequences of 4096"):
        place(REQUEST, Rollout(tokens_per_s=1.0, response=5000.0))


def test_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    words = "rollout qwen3-0.6b --cluster dgx-h100 --gpus 2 --global-batch 8 --seq-len 1024"
    assert main([*words.split(), "--rollout-rate", "500", "--response", "200", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {(one["train_gpus"], one["rollout_gpus"]) for one in document["placements"]} == {(2, 2), (1, 1)}
