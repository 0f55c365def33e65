"""Records of operators add and scale, and those of a rank add up to what it computes in a step."""

import dataclasses
import json

import pytest
from forerun_examples import request
from hypothesis import given, settings
from hypothesis import strategies as st
from random_requests import candidates, contexts

from forerun.search.cli import main
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.operators import busiest_rank_operators
from forerun.simulator.assignment.passes import shard_with
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.layer.blocks import layer_operators
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.work import OperatorTime, work_of
from forerun.spaces.clusters import load_device
from forerun.spaces.strategies import Context, Schedule, parse_strategy


@settings(max_examples=12, deadline=None)
@given(st.data())
@pytest.mark.slow
def test_operators_of_the_busiest_rank_are_its_computation_and_recomputation(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 3))
    context = dataclasses.replace(context, framework=dataclasses.replace(context.framework, allocator_stall=0.0))
    for row in range(len(table)):
        assignment = assign(context, table.strategy(row))
        costs = step_costs(assignment)
        count = assignment.shape.microbatches * (0.5 if assignment.schedule == Schedule.DUALPIPE else 1.0)
        computed_s = [
            count * sum(costs.chunks[chunk].parts[part] for chunk in chunks for part in ("compute", "recompute"))
            for chunks in assignment.chunks_of_rank
        ]
        rank, operators = busiest_rank_operators(assignment)

        assert sum(one.seconds for one in operators) == pytest.approx(computed_s[rank], rel=1e-9)
        assert computed_s[rank] == pytest.approx(max(computed_s), rel=1e-9)
        passes = [one for operator in operators for one in (operator.forward, operator.backward) if one is not None]
        assert all(0 <= one.share <= 1 for one in passes if one.seconds)


def test_records_add_and_scale() -> None:
    one = OperatorTime(name="a", direction="forward", seconds=2.0, matrix_s=1.0, memory_s=0.5, kernels=3.0)

    assert one + one == one * 2
    assert (one * 7).share_of_peak() == one.share_of_peak() == 0.5
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.seconds = 1.0  # type: ignore[misc]


def test_the_work_of_a_layer_is_the_sum_of_its_operators() -> None:
    context, settings_of = request(), parse_strategy("tp2 mbs2 sp recompute=selective")
    operators = layer_operators(context, layer_kinds(context.model)[0], shard_with(context, settings_of))
    work = work_of(operators.records, 1)
    core = [one for one in operators.records if one.core]

    assert [one.name for one in core] == ["attention core"]
    assert work.core_s == work.repeated_s == core[0].seconds
    assert work.forward_s + work.backward_s == pytest.approx(sum(float(one.at(0).seconds) for one in operators.records))


@pytest.mark.parametrize(
    ("tokens", "bounds"),
    [
        (8192, {"rmsnorm": "memory", "attention core": "tensor cores"}),
        (128, {"rmsnorm": "launch", "attention core": "launch"}),
    ],
)
def test_what_bounds_an_operator(tokens: int, bounds: dict[str, str]) -> None:
    context = request(seq_len=tokens, global_batch=8)
    _, operators = busiest_rank_operators(assign(context, parse_strategy("dp8 tp4 mbs1 sp")))
    found = {one.name: one.forward.bound for one in operators if one.forward is not None}

    assert bounds.items() <= found.items()


def test_a_product_of_few_rows_is_bound_by_memory() -> None:
    device = load_device("h100-sxm")
    product = OperatorTime(name="a", direction="forward", seconds=1.0, matrix_s=0.1, memory_s=0.6)

    assert product.bound(device) == "memory"
    assert dataclasses.replace(product, matrix_s=0.7).bound(device) == "tensor cores"
    assert dataclasses.replace(product, seconds=1e-6).bound(device) == "launch"
    assert dataclasses.replace(product, memory_s=0.05, matrix_s=0.04).bound(device) == "launch"


def test_explain_lists_operators(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", "llama3-8b", "--cluster", "dgx-h100", "--global-batch", "64", "--seq-len", "4096"]
    assert main([*words, "--strategy", "tp4 pp2 dp4 mbs1", "--json"]) == 0
    operators = json.loads(capsys.readouterr().out)["operators"]

    assert operators[0]["name"] == "feed-forward product 4096 -> 28672"
    assert operators[0]["forward"]["bound"] == "tensor cores" and 0.5 < operators[0]["backward"]["share"] < 1
    assert {one["stage"] for one in operators} == {1}
    assert main([*words, "--strategy", "tp4 pp2 dp4 mbs1"]) == 0
    assert "slowest operators of stage 1, per step" in capsys.readouterr().out


def test_full_recomputation_may_end_before_the_last_product() -> None:
    context, strategy = request(), parse_strategy("dp8 tp4 mbs1 sp recompute=full")
    stopping = dataclasses.replace(context, framework=dataclasses.replace(context.framework, stops_recompute=True))
    layer = layer_kinds(context.model)[0]
    shard = shard_with(context, strategy)
    (last,) = [one for one in layer_operators(stopping, layer, shard).records if one.not_recomputed]
    normed = dataclasses.replace(layer, norms=layer.norms + 2)
    assert not any(one.not_recomputed for one in layer_operators(stopping, normed, shard).records)

    def parts(context: Context, part: str) -> float:
        return sum(chunk.parts[part] for chunk in step_costs(assign(context, strategy)).chunks)

    products = [one for one in layer_operators(context, layer, shard).records if one.kind == "product"]
    assert last.name == [one for one in products if one.direction == "forward"][-1].name
    saved_s = parts(context, "recompute") - parts(stopping, "recompute")
    assert saved_s == pytest.approx(context.model.layer_count * float(last.at(0).seconds))
    assert parts(stopping, "compute") == parts(context, "compute")
    assert parts(stopping, "tensor") < parts(context, "tensor")
