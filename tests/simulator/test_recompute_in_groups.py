"""Full recompute in groups of layers (Megatron-LM's uniform method): words, memory at both levels, files and back."""

import numpy as np
import pytest

from forerun.search.formats import Launch, format_named, import_texts
from forerun.simulator import score
from forerun.simulator.assignment.memory import stage_memory
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.events import step_costs
from forerun.simulator.events.step.steady import step_figures
from forerun.simulator.layer.activations import layer_activations
from forerun.simulator.layer.shard import shard_of
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Context, parse_strategy, table_of, violations
from forerun.spaces.strategies.table import axis_values
from forerun.spaces.trees.convert import tree_of
from forerun.spaces.workload import Workload

PLAIN = "tp2 pp4 dp4 mbs1 zero1 sp recompute={}"
LOOPED = "tp2 pp4 dp4 mbs1 vpp5 zero1 sp recompute={} schedule=interleaved"


def context() -> Context:
    return Context(
        model=load_model("llama3-70b"),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=32, seq_len=4096),
        framework=load_framework("megatron-lm"),
    )


def scores(text: str) -> ScoreTable:
    return score(context(), table_of([parse_strategy(text)]))


@pytest.mark.parametrize(("group", "kept"), [(1, 20), (2, 10), (4, 5), (5, 4), (7, 3), (20, 1)])
def test_a_group_keeps_its_first_input_and_recomputes_all_its_layers_at_once(group: int, kept: int) -> None:
    text = PLAIN.format(f"full/{group}")
    made, strategy = context(), parse_strategy(text)
    shard = shard_of(made, table_of([strategy]), np.zeros(1, dtype=np.intp))
    one = layer_activations(made, made.model.layers[0], shard)
    whole, found = scores(PLAIN.format("full")), scores(text)
    dropped = float(whole.memory_bytes["activations"][0] - found.memory_bytes["activations"][0])
    assert dropped == pytest.approx((20 - kept) * float(one.kept[0]) * 4)  # four microbatches in flight on the first
    more = float(found.memory_bytes["working"][0] - whole.memory_bytes["working"][0])
    assert more == pytest.approx((group - 1) * float(one.whole[0]))
    assert float(found.step_time_s[0]) == float(whole.step_time_s[0])


@pytest.mark.parametrize("text", [PLAIN, LOOPED])
def test_both_levels_hold_the_same(text: str) -> None:
    made, strategy = context(), parse_strategy(text.format("full/2"))
    closed = score(made, table_of([strategy]))
    ranks = stage_memory(assign(made, strategy))
    assert float(closed.allocated_bytes[0]) == pytest.approx(float(ranks.allocated_bytes.max()))
    figures = step_figures(step_costs(assign(made, strategy)))
    assert figures.peak_bytes == pytest.approx(float(closed.allocated_bytes[0]), rel=0.02)
    assert figures.step_time_s == pytest.approx(float(closed.step_time_s[0]), rel=0.02)


@pytest.mark.parametrize("name", ["megatron-lm", "megatron-bridge"])
@pytest.mark.parametrize("text", [PLAIN.format("full/4"), LOOPED.format("full/2"), PLAIN.format("full")])
def test_files_carry_it(name: str, text: str) -> None:
    launch = Launch(
        strategy=parse_strategy(text), model=context().model, workload=context().workload, devices_per_node=8
    )
    assert str(import_texts(format_named(name).express(launch)).strategy) == text
    assert str(parse_strategy(text)) == text


def test_what_is_no_group_is_refused() -> None:
    assert str(parse_strategy(PLAIN.format("full/1"))) == PLAIN.format("full")
    for text, message in ((PLAIN.format("full/21"), "no groups of 21"), (LOOPED.format("full/5"), "no groups of 5")):
        told = violations(axis_values(parse_strategy(text)), context())
        assert any(message in words for _, words in told)
    with pytest.raises(RequestError, match="a tree has no word for recompute=full/2"):
        tree_of(context(), parse_strategy(PLAIN.format("full/2")))
    with pytest.raises(RequestError, match="halves that differ in tp"):
        parse_strategy("tp2/4 pp4 dp4/2 mbs1/2 recompute=full/2")
