"""A step under a plan: closed forms, the event engine as a second opinion, and what may be asked of it."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.simulator.events import TaskGraph, execute
from forerun.simulator.improve import (
    RULES,
    BucketRule,
    LineWire,
    Op,
    RankStep,
    ServerWire,
    StepPlan,
    best_buckets,
    best_cap,
    improve,
    rule_plan,
    simulate,
    what_ifs,
)
from forerun.simulator.improve.memory import fit_memory, split_batch
from forerun.simulator.improve.run_questions import GraphTimes
from forerun.simulator.improve.step import coarse, memory_bytes, spread
from forerun.spaces.errors import InfeasibleError, RequestError
from forerun.spaces.opgraph.profile import load_graph_profile

LINE = LineWire(latency_s=1e-4, bytes_per_s=1e9)


def chain(count=6, *, size=1e6, wire=LINE, **more):
    ops = tuple(
        Op(name=f"layer{number}", forward_s=1e-3, backward_s=2e-3, gradient_bytes=size, kept_bytes=1e6)
        for number in range(count)
    )
    return RankStep(name="chain", ops=ops, wire=wire, **more)


def one_each(step):
    return StepPlan(buckets=tuple((op,) for op in step.senders))


def test_a_chain_by_hand():
    step = chain(3, update_s=5e-3)
    # Forward 3 ms; gradients at 5, 7, 9 ms; a message takes 1.1 ms and hides but for the last.
    outcome = simulate(step, one_each(step))
    assert outcome.ready_s == pytest.approx((5e-3, 7e-3, 9e-3)) and outcome.sent_s[-1] == pytest.approx(10.1e-3)
    assert outcome.step_s == pytest.approx(15.1e-3) and outcome.exposed_s == pytest.approx(1.1e-3)
    # One bucket: 3.1 ms behind all. No overlap: three messages behind all.
    assert simulate(step, StepPlan(buckets=((2, 1, 0),))).step_s == pytest.approx(9e-3 + 3.1e-3 + 5e-3)
    assert simulate(step, replace(one_each(step), overlap=False)).step_s == pytest.approx(9e-3 + 3.3e-3 + 5e-3)
    # Two passes before one exchange: 9 ms more, half of it per pass.
    twice = simulate(step, replace(one_each(step), accumulate=2))
    assert twice.step_s == pytest.approx(24.1e-3) and twice.pass_s == pytest.approx(12.05e-3)
    # Recomputing the middle layer: 1 ms of forward pass again.
    assert simulate(step, replace(one_each(step), recomputed=frozenset({1}))).step_s == pytest.approx(16.1e-3)


def test_slowdown_by_hand():
    step = chain(2, size=5e6, slowdown=1.5)
    # Backward of layer 1 ends at 4 ms; its message lasts to 9.1. Layer 0's 2 ms take 3 under it and end at 7.
    outcome = simulate(step, one_each(step))
    assert outcome.ready_s == pytest.approx((4e-3, 7e-3))
    assert outcome.sent_s == pytest.approx((9.1e-3, 14.2e-3))


def test_the_event_engine_says_the_same():
    generator = np.random.default_rng(3)
    for _ in range(20):
        ops = tuple(
            Op(
                name=str(number),
                forward_s=generator.uniform(0, 1e-3),
                backward_s=generator.uniform(0, 2e-3),
                gradient_bytes=float(generator.choice([0.0, 1e5, 3e6])),
            )
            for number in range(9)
        )
        step = RankStep(name="drawn", ops=ops, wire=LINE, slowdown=float(generator.choice([1.0, 1.4])))
        plan = best_buckets(step)
        graph = TaskGraph(("compute", "message"))
        compute = graph.add_stream("compute", device=0)
        network = graph.add_stream("network", device=0)
        graph.slow(compute, step.slowdown, [network])
        made = {}
        for op in ops:
            graph.add(0, op.forward_s, compute)
        for number in range(len(ops) - 1, -1, -1):
            made[number] = graph.add(0, ops[number].backward_s, compute)
        for bucket in plan.buckets:
            size = sum(ops[op].gradient_bytes for op in bucket)
            graph.add(1, float(step.wire.seconds(size)), network, [made[op] for op in bucket])
        assert simulate(step, plan).step_s == pytest.approx(execute(graph).makespan_s, rel=1e-9)


def test_buckets_of_frameworks():
    step = chain(8, size=10 * 2.0**20)
    ddp = rule_plan(step, RULES["ddp"])
    # The first bucket is full at 1 MiB, the others once they hold 25 MiB.
    assert [len(bucket) for bucket in ddp.buckets] == [1, 3, 3, 1]
    assert [len(bucket) for bucket in rule_plan(step, RULES["horovod"]).buckets] == [6, 2]
    rule = BucketRule(cap_bytes=2.5e6, first_bytes=1, setting="", source="")
    order = replace(step, order=(0, 1, 2, 3, 4, 5, 6, 7))
    assert rule_plan(order, rule).buckets[0] == (0,)
    assert simulate(order, rule_plan(order, rule)).step_s > simulate(step, rule_plan(step, rule)).step_s


def test_the_best_cap_is_the_largest_of_those_alike():
    step = chain(16, size=1e5, wire=LineWire(latency_s=2e-3, bytes_per_s=1e9))
    cap, outcome = best_cap(step, RULES["ddp"])
    assert outcome.step_s <= simulate(step, rule_plan(step, RULES["ddp"])).step_s
    fast = chain(16, size=1e5, wire=LineWire(latency_s=0.0, bytes_per_s=1e15))
    assert best_cap(fast, RULES["ddp"])[0] == RULES["ddp"]
    assert cap.cap_bytes > 0


def test_pieces_overlap_both_directions_of_servers():
    wire = ServerWire(push_s=1e-4, pull_s=1e-4, push_bytes_per_s=1e9, pull_bytes_per_s=1e9)
    size = 1e8
    best = int(wire.best_pieces(size))
    times = {pieces: float(wire.seconds(size, pieces)) for pieces in range(1, 65)}
    assert times[best] == min(times.values())
    assert best == round((size * 1e-9 / 1e-4) ** 0.5)


def test_recomputation_is_as_little_as_the_memory_needs():
    step = chain(6)
    plan = one_each(step)
    assert fit_memory(step, plan, 6e6) == plan
    less = fit_memory(step, plan, 4.5e6)
    assert memory_bytes(step, less) <= 4.5e6 and len(less.recomputed) == 3
    with pytest.raises(InfeasibleError, match="smaller batch"):
        fit_memory(step, plan, 0.5e6)
    part = split_batch(step, 2)
    assert part.ops[0].forward_s == pytest.approx(0.6e-3) and part.ops[0].kept_bytes == 0.5e6
    found = improve(step, RULES["ddp"], limit_bytes=4.5e6)
    assert found.best.memory_bytes <= 4.5e6 and found.changes[0].name == "memory"


def test_the_coarse_step_takes_as_long():
    ops = [Op(name=str(number), forward_s=1e-3, backward_s=1e-3) for number in range(9)]
    ops[3] = Op(name="3", forward_s=1e-3, backward_s=1e-3, gradient_bytes=1e6)
    ops[7] = Op(name="7", forward_s=1e-3, backward_s=1e-3, gradient_bytes=1e6, fused_backward_s=1e-4)
    step = RankStep(name="gaps", ops=tuple(ops), wire=LINE)
    small, members = coarse(step)
    assert len(small.ops) == 6 and [number for group in members for number in group] == list(range(9))
    plan = best_buckets(small)
    assert simulate(small, plan).step_s == pytest.approx(simulate(step, spread(plan, members)).step_s)


def test_questions():
    step = chain(8, size=4e6)
    found = improve(step, RULES["ddp"])
    answers = {(one.name, one.what): one for one in what_ifs(step, found)}
    now = answers["as it is", ""]
    assert now.default_s == found.default.step_s and now.best_s == found.best.step_s
    for one in answers.values():
        if one.name.startswith("faster"):
            assert one.default_s <= now.default_s and one.best_s <= min(one.default_s, now.best_s) + 1e-12
    assert answers["no overlap", "messages after the backward pass"].default_s >= now.default_s


def test_questions_keep_to_the_memory():
    step = chain(8, size=1e5)
    for limit in (4.5e6, 2e6):  # the second cannot be recomputed into: the batch is split
        found = improve(step, RULES["ddp"], limit_bytes=limit)
        answers = {(one.name, one.what): one for one in what_ifs(step, found)}
        now = answers["as it is", ""]
        assert now.best_s == pytest.approx(found.best.pass_s * (1 if found.step is step else found.plan.accumulate))
        assert now.default_s >= now.best_s
        roomy = {(one.name, one.what): one for one in what_ifs(step, improve(step, RULES["ddp"]))}
        # What the memory takes is computed on any machine: no question is answered as if there were enough.
        for key in (("faster link", "4 times the bandwidth"), ("faster kernels", "all 2 times as fast")):
            assert answers[key].best_s > roomy[key].best_s
            assert answers[key].default_s > roomy[key].default_s


def test_partial_replay_is_whole_replay():
    generator = np.random.default_rng(0)
    graph = TaskGraph(("task",))
    streams = [graph.add_stream(str(number), device=number) for number in range(5)]
    for task in range(400):
        after = generator.choice(task, size=min(task, 2), replace=False).tolist() if task else []
        graph.add(0, generator.uniform(0, 1), streams[task % 5], after)
    timing = GraphTimes(graph)
    assert timing.makespan_s == pytest.approx(execute(graph).makespan_s)
    for _ in range(30):
        changes = {int(task): generator.uniform(0, 2) for task in generator.choice(400, size=3)}
        said = timing.what_if(changes)
        kept = graph.duration_s[:]
        for task, duration in changes.items():
            graph.duration_s[task] = duration
        assert said == pytest.approx(execute(graph).makespan_s)
        graph.duration_s[:] = kept
    assert timing.what_if({399: graph.duration_s[399] * 0.5}) <= timing.makespan_s and timing.visited == 1


def test_wrong_plans_and_steps_are_told():
    step = chain(3)
    for plan in (
        StepPlan(buckets=((2, 1),)),
        StepPlan(buckets=((2, 1, 0), (0,))),
        StepPlan(buckets=((2, 1, 0),), fused=frozenset({0})),
        StepPlan(buckets=((2, 1, 0),), recomputed=frozenset({7})),
        StepPlan(buckets=((2, 1, 0),), accumulate=0),
        StepPlan(buckets=((2, 1, 0),), pieces=(1, 2)),
    ):
        with pytest.raises(RequestError):
            simulate(step, plan)
    with pytest.raises(RequestError, match="at least 0"):
        Op(name="x", forward_s=float("nan"), backward_s=0)
    with pytest.raises(RequestError, match="rate above 0"):
        LineWire(latency_s=0, bytes_per_s=0)
    with pytest.raises(RequestError, match="no shared links"):
        graph = TaskGraph(("task",))
        graph.add_stream("free", device=0, ordered=False)
        GraphTimes(graph)


@pytest.mark.parametrize(("rule", "profile"), [("ddp", "pytorch-ddp"), ("horovod", "horovod")])
def test_default_buckets_are_those_of_the_profile(rule: str, profile: str) -> None:
    """``improve`` and the closed forms of operator graphs speak of the same software."""
    assert RULES[rule].cap_bytes == load_graph_profile(profile).bucket_bytes
