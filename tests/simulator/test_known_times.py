"""Times of blocks that were computed before are those that would be computed again."""

from dataclasses import fields, replace

import numpy as np
import pytest

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.assignment.replicas import parameters_with
from forerun.simulator.layer import known_times, remembered
from forerun.simulator.layer.asked import OF_EXPERTS, OF_TRAFFIC, OF_WHOLE_STEPS
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.known_times import known_block_times
from forerun.simulator.layer.known_work import block_work, known_block_work
from forerun.simulator.layer.shard import Shard, shard_of
from forerun.simulator.layer.times import BlockTimes, block_times
from forerun.simulator.replicas.reduction import REPLICA_DEGREES, ReplicaCosts, Replicas, replica_costs
from forerun.spaces.strategies import Context, Recompute, Strategy, table_of

STRATEGIES = [
    Strategy(tp=tp, mbs=mbs, sp=tp > 1, recompute=recompute)
    for tp in (1, 2, 8)
    for mbs in (1, 4)
    for recompute in (Recompute.NONE, Recompute.FULL)
]


def context_of(model: str, framework: str = "megatron-lm") -> Context:
    request = Request(model=model, cluster="dgx-h100", gpus="64", global_batch=512, seq_len=4096, framework=framework)
    return resolve(request).context


def shard(context: Context, rows: list[int]) -> Shard:
    return shard_of(context, table_of(STRATEGIES), np.asarray(rows))


def arrays(times: BlockTimes) -> list[np.ndarray]:
    return [
        times.forward_s,
        times.backward_s,
        times.weight_s,
        *times.parts.values(),
        *times.recompute.values(),
        *(times.alone_s or ()),
    ]


def assert_same(found: BlockTimes, fresh: BlockTimes) -> None:
    assert found.parts.keys() == fresh.parts.keys()
    assert found.recompute.keys() == fresh.recompute.keys()
    for own, other in zip(arrays(found), arrays(fresh), strict=True):
        assert np.array_equal(own, other)


@pytest.mark.parametrize("model", ["llama3-8b", "deepseek-v2-lite"])
def test_times_are_the_same_bit_by_bit_whatever_was_asked_before(model: str) -> None:
    context = context_of(model)
    for rows in ([0, 1, 2], [2, 1, 5, 5, 11], [0, 11], [3, 3, 4, 6, 7, 8, 9, 10]):
        asked = shard(context, rows)
        assert_same(known_block_times(context, asked), block_times(context, asked))


def test_a_shard_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def counted(context: Context, some: Shard) -> BlockTimes:
        computed.append(len(some))
        return block_times(context, some)

    monkeypatch.setattr(known_times, "block_times", counted)
    context = context_of("llama3-8b")
    for rows in ([0, 1, 1], [1, 0, 2], [2, 1]):
        known_block_times(context, shard(context, rows))
    assert computed == [2, 1]


def test_other_workloads_and_software_have_their_own_times() -> None:
    context = context_of("llama3-8b")
    asked = shard(context, [0, 4, 9])
    known_block_times(context, asked)
    for other in (
        replace(context, workload=replace(context.workload, precision="fp8")),
        replace(context, framework=context_of("llama3-8b", "deepspeed").framework),
    ):
        assert_same(known_block_times(other, asked), block_times(other, asked))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "MOST", 4)
    context = context_of("llama3-8b")
    for rows in ([0, 1, 2], [3, 4, 0], [5, 6, 7, 8, 9, 10], [0]):
        asked = shard(context, rows)
        assert_same(known_block_times(context, asked), block_times(context, asked))


def test_work_is_the_same_bit_by_bit_whatever_was_asked_before() -> None:
    context = context_of("deepseek-v2-lite")
    for rows in ([0, 2], [0, 1, 2, 3], [11, 0]):
        asked = shard(context, rows)
        for found, fresh in zip(known_block_work(context, asked), block_work(context, asked), strict=True):
            assert np.array_equal(found.forward_s, fresh.forward_s)
            assert np.array_equal(found.backward_s, fresh.backward_s)
            assert found.modules_s.keys() == fresh.modules_s.keys()
            assert all(np.array_equal(found.modules_s[module], fresh.modules_s[module]) for module in fresh.modules_s)


@pytest.mark.parametrize("framework", ["megatron-lm", "nemo", "torchtitan", "deepspeed"])
def test_what_a_profile_says_of_traffic_changes_no_work(framework: str) -> None:
    context = context_of("deepseek-v2-lite", framework)
    profile, asked = context.framework, shard(context, [0, 5, 11])
    moved = {name: neutral if getattr(profile, name) != neutral else 1 for name, neutral in OF_TRAFFIC.items()}
    moved["graphed"] = ("attention",)
    other = replace(context, framework=replace(profile, **moved))
    for found, fresh in zip(block_work(other, asked), block_work(context, asked), strict=True):
        assert np.array_equal(found.forward_s, fresh.forward_s)
        assert np.array_equal(found.backward_s, fresh.backward_s)


def test_a_key_holds_every_field_of_a_shard() -> None:
    context = context_of("llama3-8b")
    asked = shard(context, [0, 5])
    known_block_times(context, asked)
    for field in fields(Shard):
        value = getattr(asked, field.name)
        changed = replace(asked, **{field.name: ~value if value.dtype == bool else value * 2})
        assert_same(known_block_times(context, changed), block_times(context, changed))


@pytest.mark.parametrize("framework", ["megatron-lm", "nemo", "torchtitan"])
def test_what_a_profile_says_of_whole_steps_changes_no_block(framework: str) -> None:
    context = context_of("deepseek-v2-lite" if framework == "nemo" else "llama3-8b", framework)
    asked = shard(context, [0, 5, 11])
    names = (*OF_WHOLE_STEPS, *(() if context.moe else OF_EXPERTS))
    present = {name: getattr(context.framework, name) for name in names}
    moved = {name: 0.5 * value + 0.25 for name, value in present.items() if isinstance(value, float)}
    chosen = {"overlap_pipeline": not present["overlap_pipeline"], "graphs": "layers", "graphed": ("attention", "mlp")}
    moved |= {name: value for name, value in chosen.items() if name in names} | {"switches": ()}
    assert moved.keys() == present.keys()
    other = replace(context, framework=replace(context.framework, **moved))
    assert_same(block_times(other, asked), block_times(context, asked))
    settings = Strategy(dp=8, tp=2, pp=4, zero=1)
    on = np.ones((len(layer_kinds(context.model)) + 2, 4))
    degrees = {axis: np.full(4, float(getattr(settings, axis))) for axis in REPLICA_DEGREES}
    replicas = Replicas(parameters=parameters_with(context, settings, on), **degrees)
    found, fresh = (replica_costs(one, replicas) for one in (other, context))
    for field in fields(ReplicaCosts):
        assert np.array_equal(getattr(found, field.name), getattr(fresh, field.name))


def test_a_changed_cost_rule_counts_once_the_times_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    context = context_of("llama3-8b")
    asked = shard(context, [0, 5])
    before = known_block_times(context, asked)

    def slower(context: Context, some: Shard) -> BlockTimes:
        found = block_times(context, some)
        return replace(found, forward_s=2 * found.forward_s)

    monkeypatch.setattr(known_times, "block_times", slower)
    known_times.forget()
    np.testing.assert_array_equal(known_block_times(context, asked).forward_s, 2 * before.forward_s)
    known_times.forget()
