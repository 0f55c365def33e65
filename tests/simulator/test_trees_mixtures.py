"""Strategies that no flat one says: every mixture against what it must be by hand or between the two it mixes."""

import dataclasses
from itertools import pairwise

import pytest
from forerun_examples import dense_model, request

from forerun.simulator.assignment.borders import borders_between
from forerun.simulator.assignment.of_tree import assign_tree
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.events import StepCosts, simulate_costs
from forerun.simulator.events.trees import TreeResult, simulate_tree
from forerun.simulator.pipeline.p2p import p2p_time_s
from forerun.spaces.errors import RequestError
from forerun.spaces.schedules import SCHEDULES, Pass, PipelineShape, limited
from forerun.spaces.strategies import Context, Schedule, parse_strategy, table_of
from forerun.spaces.trees import TreeError, TreeStrategies, legal_tree, model_layers, resolve_tree
from forerun.spaces.trees.document import parse_tree

ONE = """\
schedule: {{microbatches: 4}}
compute: {{dp: 4, tp: 2}}
children: [{child}]
"""
TWO = """\
schedule: {{microbatches: 8}}
compute: {{tp: 2}}
memory: {{zero: 1}}
children:
  - {{layers: [embedding, 0-11], devices: 0-7{first}}}
  - {{layers: [12-23, head], devices: 8-15{second}}}
"""


def context() -> Context:
    """Return a request whose devices never wait for launches, with 25 GB/s to the host."""
    made = request(framework="generic", global_batch=64)
    framework = dataclasses.replace(made.framework, host_layer_s=0.0, host_microbatch_s=0.0, overlap_pipeline=True)
    cluster = dataclasses.replace(made.cluster, host={"bytes_per_s_per_device": 25e9})
    return dataclasses.replace(made, framework=framework, cluster=cluster)


def tree(text: str, made: Context | None = None) -> TreeStrategies:
    made = made or context()
    return legal_tree(made, resolve_tree(parse_tree(text), model_layers(made.model)))


def simulated(text: str) -> TreeResult:
    return simulate_tree(context(), tree(text))


def one(child: str) -> TreeResult:
    return simulated(ONE.format(child="{" + child + "}"))


def two(first: str = "", second: str = "") -> TreeResult:
    return simulated(TWO.format(first=first, second=second))


def test_recompute_on_chosen_layers_lies_between_none_and_all() -> None:
    results = [one(f"layers: 0-{last}, schedule: {{recompute: full}}") for last in (3, 11, 23)]
    chain = [one("layers: 0, schedule: {recompute: none}"), *results]

    for less, more in pairwise(chain):
        assert more.scores.step_time_s[0] > less.scores.step_time_s[0]
        assert more.scores.memory_bytes["activations"][0] < less.scores.memory_bytes["activations"][0]
        assert more.scores.time_s["recompute"][0] > less.scores.time_s["recompute"][0]
    shares = [result.scores.time_s["recompute"][0] for result in results]
    # Passes beside traffic of replicas take a little longer.
    assert shares[0] / shares[2] == pytest.approx(4 / 24, rel=2e-3)


def test_layers_sharded_alone_free_their_own_parameters() -> None:
    whole, mixed, none = (one(f"layers: {layers}, memory: {{zero: 3}}") for layers in ("0-23", "0-11", "embedding"))
    parameters = [result.scores.memory_bytes["parameters"][0] for result in (whole, mixed, none)]

    assert parameters[0] < parameters[1] < parameters[2]
    saved = [value - one("layers: 0").scores.memory_bytes["parameters"][0] for value in parameters[:2]]
    assert saved[1] / saved[0] == pytest.approx(0.5)
    stage = mixed.events.costs.stages[0]
    assert (stage.zero, [cost.zero for cost in stage.also]) == (0, [3])
    # What is not sharded is reduced once per step, what is sharded with every microbatch.
    kinds = [task.kind for task in mixed.events.timeline()]
    assert kinds.count("gather") > 0 and kinds.count("reduce") > kinds.count("gather") / 2


def test_mixed_sharding_lies_between_its_two_kinds() -> None:
    sharded, mixed, whole = (
        one(f"layers: {layers}, memory: {{zero: {z}}}") for layers, z in (("0-23", 3), ("0-11", 3), ("0-23", 0))
    )
    fixed = [result.events.costs.stages[0].fixed_bytes for result in (sharded, mixed, whole)]

    assert fixed[0] < fixed[1] < fixed[2]
    assert sharded.events.step_time_s >= mixed.events.step_time_s >= whole.events.step_time_s


def test_tp_may_change_inside_a_stage_at_a_price() -> None:
    """Halves of one stage at tp 2 and tp 4: activations are gathered over the replicas that merge, and sums of their
    gradients scattered."""
    made, text = context(), ONE.format(child="{layers: [12-23, head], compute: {dp: 2, tp: 4}}")
    strategies = tree(text)
    borders = borders_between(made, strategies)
    flat = [
        step_costs(
            assign_tree(made, tree(ONE.format(child="{layers: 0}").replace("dp: 4, tp: 2", f"dp: {d}, tp: {t}")))
        )
        for d, t in ((4, 2), (2, 4))
    ]
    mixed = step_costs(assign_tree(made, strategies))

    found = [(b["direction"], b["kind"], b["members"]) for b in borders]
    assert found == [("forward", "all_gather", 2), ("backward", "reduce_scatter", 2), ("backward", "all_reduce", 2)]
    halves = [(costs.chunks[0].forward_s, costs.chunks[0].backward_s) for costs in flat]
    assert min(f for f, _ in halves) < mixed.chunks[0].forward_s
    crossing = mixed.chunks[0].parts["tensor"]
    assert crossing > min(costs.chunks[0].parts["tensor"] for costs in flat)


def test_uneven_stages_take_their_own_time() -> None:
    even = step_costs(assign_tree(context(), tree(TWO.format(first="", second=""))))
    uneven = step_costs(
        assign_tree(context(), tree(TWO.format(first="", second="").replace("0-11", "0-7").replace("12-23", "8-23")))
    )
    layer = even.chunks[0].forward_s - uneven.chunks[0].forward_s

    assert layer > 0
    assert uneven.chunks[1].forward_s - even.chunks[1].forward_s == pytest.approx(layer)


def test_stages_may_have_different_numbers_of_devices() -> None:
    """Eight devices feed four: every one of the four gets the parts of two, point to point."""
    made = context()
    text = TWO.format(first="", second="").replace("8-15", "8-11")
    strategies = tree(text)
    result = simulate_tree(made, strategies)
    borders = borders_between(made, strategies)

    assert strategies.tree.device_count == 12
    assert [(b["kind"], b["groups"]) for b in borders] == [("point_to_point", 8), ("point_to_point", 8)]
    assert result.events.costs.chunks[1].forward_s > result.events.costs.chunks[0].forward_s
    whole = 64 / 8 * made.workload.seq_len * made.model.hidden * 2
    assert sum(float(str(b["bytes"])) for b in borders if b["direction"] == "forward") == 2 * whole


def test_a_tied_table_costs_an_all_reduce_between_the_ends() -> None:
    made = dataclasses.replace(context(), model=dataclasses.replace(dense_model(), tied_embeddings=True))
    apart = step_costs(assign_tree(made, tree(TWO.format(first="", second=""), made)))
    together = step_costs(assign_tree(made, tree(ONE.format(child="{layers: 0}"), made)))

    assert apart.tied_s > 0
    assert together.tied_s == 0
    assert step_costs(assign_tree(made, tree(TWO.format(first="", second=", compute: {tp: 4}"), made))).tied_s > 0
    with pytest.raises(TreeError, match="share one table on the same devices and must cut it alike"):
        tree(ONE.format(child="{layers: head, compute: {dp: 2, tp: 4}}"), made)


@pytest.mark.parametrize("count", [4, 8])
def test_limits_on_what_is_in_flight_are_1f1b_and_gpipe(count: int) -> None:
    shape = PipelineShape(pp=4, vpp=1, microbatches=count)

    assert limited(shape, [4, 3, 2, 1]) == SCHEDULES[Schedule.ONE_F_ONE_B].programs(shape)
    forwards = list(limited(shape, [count] * 4)[0])[:count]
    assert {action.kind for action in forwards} == {Pass.FORWARD}
    assert limited(shape, [1, 4, 4, 4]) == limited(shape, [1, 1, 1, 1])


def test_fewer_in_flight_take_longer_and_keep_less() -> None:
    tight, loose = (two(*(f", schedule: {{in_flight: {k}}}" for k in limits)) for limits in ((1, 1), (2, 1)))

    assert loose.events.step_time_s == pytest.approx(two().events.step_time_s)
    assert tight.events.step_time_s > loose.events.step_time_s
    assert tight.events.stages[0].peak_bytes < loose.events.stages[0].peak_bytes


def test_optimizer_states_on_the_host_leave_the_device_and_are_updated_there() -> None:
    """Two sockets of 140 GB/s move 2.5 times the states of eight devices."""
    device, host = two(), two(", memory: {host: [optimizer]}", ", memory: {host: [optimizer]}")
    rate = 2 * 140e9 / (2.5 * 8)
    costs, before = host.events.costs, device.events.costs

    for with_host, without in zip(costs.stages, before.stages, strict=True):
        freed = without.fixed_bytes - with_host.fixed_bytes
        assert freed > 0
        assert with_host.optimizer_s == pytest.approx(max(freed / rate, without.optimizer_s))
    fast = context()
    hosts = {**fast.cluster.host, "memory_bytes_per_s": 1e15}
    fast = dataclasses.replace(fast, cluster=dataclasses.replace(fast.cluster, host=hosts))
    again = simulate_tree(fast, tree(TWO.format(first=", memory: {host: [optimizer]}", second="")))
    freed = before.stages[0].fixed_bytes - again.events.costs.stages[0].fixed_bytes
    assert again.events.costs.stages[0].optimizer_s == pytest.approx(max(freed / 25e9, before.stages[0].optimizer_s))


def test_what_leaves_the_device_must_fit_into_its_host() -> None:
    """Two stages of eight devices on nodes of eight: each host keeps what its eight devices do not."""
    device, host = two(), two(", memory: {host: [optimizer]}")
    freed = device.events.costs.stages[0].fixed_bytes - host.events.costs.stages[0].fixed_bytes
    strategies = tree(TWO.format(first=", memory: {host: [optimizer]}", second=""))

    def on(memory_bytes: float) -> Context:
        made = context()
        hosts = {**made.cluster.host, "memory_bytes": memory_bytes}
        return dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, host=hosts))

    assert simulate_tree(on(8.001 * freed), strategies).events.step_time_s == host.events.step_time_s
    with pytest.raises(RequestError, match=r"GiB are in the memory of a host that has .*shard the optimizer"):
        simulate_tree(on(7.999 * freed), strategies)
    activations = tree(
        TWO.format(first=", memory: {host: [activations]}", second="").replace("{micro", "{order: gpipe, micro")
    )
    with pytest.raises(RequestError, match="are in the memory of a host"):
        simulate_tree(on(1e9), activations)


def test_activations_on_the_host_are_away_between_their_passes() -> None:
    made = context()
    made = dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, host={"bytes_per_s_per_device": 4e11}))
    texts = (TWO.format(first=first, second="") for first in ("", ", memory: {host: [activations]}"))
    device, host = (simulate_tree(made, tree(text.replace("{micro", "{order: gpipe, micro"))) for text in texts)
    copies = [task for task in host.events.timeline() if task.kind == "copy"]

    layers = host.events.costs.chunks[0].host_parts
    assert layers == 13  # those of the first stage, with the embedding
    assert sum("away" in task.name for task in copies) >= 8 * layers
    kept = [result.events.stages[0].peak_bytes - result.events.costs.stages[0].fixed_bytes for result in (host, device)]
    assert kept[0] < 0.5 * kept[1]
    assert host.events.memory[0].held_bytes[-1] == pytest.approx(host.events.costs.stages[0].fixed_bytes)
    size = host.events.costs.chunks[0].host_bytes
    copied_s = sum(task.end_s - task.start_s for task in copies)
    assert copied_s == pytest.approx(2 * 8 * size / host.events.costs.host_bytes_per_s)


def test_activations_on_the_host_make_room_without_a_pipeline() -> None:
    """One stage: a few layers of one microbatch are on the device at a time, and copies hide behind the passes."""
    made = context()
    made = dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, host={"bytes_per_s_per_device": 4e11}))
    device, host = (
        simulate_tree(made, tree("schedule: {microbatches: 8}\ncompute: {dp: 8}\n" + more))
        for more in ("", "memory: {host: [activations]}\n")
    )
    size = host.events.costs.chunks[0].host_bytes
    freed = device.events.peak_memory_bytes - host.events.peak_memory_bytes
    assert freed > 0.5 * size
    assert host.events.step_time_s < 1.1 * device.events.step_time_s
    assert host.events.memory[0].held_bytes[-1] == pytest.approx(host.events.costs.stages[0].fixed_bytes)


def test_parameters_on_the_host_come_before_every_pass() -> None:
    device, host = two(), two(", memory: {host: [parameters]}")
    chunk, rate = host.events.costs.chunks[0], host.events.costs.host_bytes_per_s
    copied_s = sum(task.end_s - task.start_s for task in host.events.timeline() if task.kind == "copy")

    assert chunk.fetches == 13
    assert copied_s == pytest.approx(2 * 8 * chunk.fetch_bytes / rate)
    assert host.events.step_time_s >= device.events.step_time_s
    assert host.events.costs.stages[0].fixed_bytes < device.events.costs.stages[0].fixed_bytes
    assert host.events.costs.chunks[1].fetch_bytes == 0


def test_a_host_without_a_rate_is_named() -> None:
    made = context()
    made = dataclasses.replace(made, cluster=dataclasses.replace(made.cluster, host={}))

    with pytest.raises(RequestError, match="tensors on the host need the rate of its links"):
        step_costs(assign_tree(made, tree(TWO.format(first=", memory: {host: [optimizer]}", second=""))))


def test_hops_between_equal_stages_are_those_of_flat_strategies() -> None:
    costs: StepCosts = step_costs(assign_tree(context(), tree(TWO.format(first="", second=""))))
    flat = float(p2p_time_s(context(), table_of([parse_strategy("tp2 pp2 dp4 mbs2 zero1")]))[0])

    assert costs.p2p_s == flat
    assert simulate_costs(costs).step_time_s > 0
