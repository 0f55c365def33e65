"""Attention and MLP of a layer configured apart: they add up to the layer, and what lies between them is inferred."""

import dataclasses
from itertools import product

import numpy as np
import pytest
from forerun_examples import dense_model, moe_model, request
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import contexts

from forerun.simulator.assignment.borders import activation_layout, borders_between
from forerun.simulator.assignment.collectives import collectives_inside
from forerun.simulator.assignment.of_tree import assign_tree
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.costs import collective_time_s
from forerun.simulator.events import event_scores
from forerun.simulator.events.trees import TreeResult, simulate_tree
from forerun.simulator.layer.activations import gathered_buffers, layer_activations
from forerun.simulator.layer.blocks import layer_work
from forerun.simulator.layer.communication import tensor_blocks
from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.shard import Shard, shard_of
from forerun.simulator.layouts import Share, TransferPhase, needs_of
from forerun.spaces.models import LatentAttention, LayerParameters, Model, layer_parameters
from forerun.spaces.models.model import MODULES, module_of
from forerun.spaces.operators import LayerDegrees, layer_cuts, transformer_layer
from forerun.spaces.strategies import Context, parse_strategy, table_of
from forerun.spaces.trees import TreeStrategies, flat_of, legal_tree, model_layers, resolve_tree
from forerun.spaces.trees.document import parse_tree

ROOT = """\
schedule: {{microbatches: 4}}
compute: {{{compute}}}
children: [{children}]
"""


def context(model: Model | None = None) -> Context:
    """Return a request whose devices never wait for launches."""
    made = request(model, framework="generic", global_batch=64)
    framework = dataclasses.replace(made.framework, host_layer_s=0.0, host_microbatch_s=0.0)
    return dataclasses.replace(made, framework=framework)


def tree(made: Context, compute: str, *children: str) -> TreeStrategies:
    text = ROOT.format(compute=compute, children=", ".join(f"{{{child}}}" for child in children))
    return legal_tree(made, resolve_tree(parse_tree(text), model_layers(made.model)))


def simulated(compute: str, *children: str) -> TreeResult:
    return simulate_tree(context(), tree(context(), compute, *children))


def shard(made: Context, text: str) -> Shard:
    return shard_of(made, table_of([parse_strategy(text)]), np.zeros(1, dtype=np.intp))


@settings(max_examples=tries(25))
@given(made=contexts(), degrees=st.sampled_from(["dp8", "tp2 dp4 sp", "tp4 dp2 mbs2", "cp2 dp4"]))
def test_work_and_tensors_of_modules_add_up(made: Context, degrees: str) -> None:
    one = shard(made, degrees)
    for layer in layer_kinds(made.model):
        parts = [module_of(layer, module) for module in MODULES]
        works = [layer_work(made, part, one) for part in parts]
        whole = layer_work(made, layer, one)

        for name in ("forward_s", "input_gradient_s", "core_s"):
            assert sum(getattr(work, name) for work in works) == pytest.approx(getattr(whole, name), rel=1e-12)
        kept = [layer_activations(made, part, one).kept for part in parts]
        assert sum(kept) == pytest.approx(layer_activations(made, layer, one).kept, rel=1e-12)
        gathered = [gathered_buffers(made, part, one) for part in parts]
        assert sum(gathered) == pytest.approx(gathered_buffers(made, layer, one), rel=1e-12)
        assert sum(map(tensor_blocks, parts)) == tensor_blocks(layer)


@pytest.mark.parametrize(
    ("compute", "strategy"),
    [("tp: 2, dp: 4, sp: true", "tp2 dp4 mbs4 sp"), ("dp: 8, ep: 8", "dp8 ep8 mbs2"), ("dp: 8", "dp8 mbs2")],
)
def test_modules_configured_alike_are_the_flat_strategy(compute: str, strategy: str) -> None:
    made = context(moe_model())
    strategies = tree(made, compute, f"modules: attention, compute: {{{compute.partition(', ep')[0]}}}")
    found, flat = simulate_tree(made, strategies), event_scores(made, table_of([parse_strategy(strategy)]))

    assert not strategies.per_module
    assert flat_of(made, strategies) is not None
    assert found.scores.step_time_s[0] == pytest.approx(flat.step_time_s[0], rel=1e-12)
    assert found.scores.peak_memory_bytes[0] == pytest.approx(flat.peak_memory_bytes[0], rel=1e-12)


def test_experts_are_the_business_of_the_mlp_alone() -> None:
    made = context(moe_model())
    strategies = tree(made, "dp: 8", "modules: mlp, compute: {ep: 4}, layers: 0-3")

    assert not strategies.per_module
    assert [one.ep for one in strategies.of_leaf[0]][:6] == [1, 4, 4, 4, 4, 1]


def test_recomputing_the_core_is_the_business_of_attention_alone() -> None:
    apart = simulated("tp: 2, dp: 4", "modules: attention, schedule: {recompute: selective}")
    flat = event_scores(context(), table_of([parse_strategy("tp2 dp4 mbs4 recompute=selective")]))

    assert apart.scores.step_time_s[0] == pytest.approx(flat.step_time_s[0], rel=1e-12)
    assert apart.scores.peak_memory_bytes[0] == pytest.approx(flat.peak_memory_bytes[0], rel=1e-12)


def test_attention_in_data_parallel_and_an_mlp_cut_by_tp() -> None:
    """Tokens are gathered for the MLP, its sums go back in parts, and gradients likewise: four collectives a layer."""
    made = context()
    strategies = tree(made, "dp: 1, tp: 8", "modules: attention, compute: {dp: 8, tp: 1}")
    layers = made.model.layer_count
    found = [
        (b["between"], b["direction"], b["kind"], b["members"], b["count"], b.get("instead_of"))
        for b in borders_between(made, strategies)
    ]

    inside, after = ["0.attention", "0.mlp"], ["0.mlp", "1.attention"]
    assert found == [
        (["embedding", "0.attention"], "forward", "reduce_scatter", 8, 1, "all_reduce"),
        (["embedding", "0.attention"], "backward", "all_gather", 8, 1, None),
        (inside, "forward", "all_gather", 8, layers, None),
        (inside, "backward", "reduce_scatter", 8, layers, "all_reduce"),
        (after, "forward", "reduce_scatter", 8, layers - 1, "all_reduce"),
        (after, "backward", "all_gather", 8, layers - 1, None),
    ]


def test_exchange_of_modules_takes_what_its_collectives_take() -> None:
    made = context()
    profile = dataclasses.replace(made.framework, overlap_tensor=0.0, overlap_tensor_backward=0.0)
    made = dataclasses.replace(made, framework=profile)
    size = 16 * made.workload.seq_len * made.model.hidden * 2.0

    def seconds(kind: str) -> float:
        found = collective_time_s(made.cluster, kind, size, 8, 1)  # type: ignore[arg-type]  # a name of a rule
        return float(found) + profile.collective_launch_s

    # Layers from 1 on differ by as many of the same collectives: two of each kind in both directions.
    parts = [
        step_costs(
            assign_tree(made, tree(made, "dp: 8", f"modules: mlp, layers: 0-{last}, compute: {{dp: 1, tp: 8}}"))
        ).chunks[0]
        for last in (3, 11)
    ]
    more = parts[1].parts["tensor"] - parts[0].parts["tensor"]
    assert more == pytest.approx(8 * (2 * seconds("all_gather") + 2 * seconds("reduce_scatter")), rel=1e-9)


CUTS = [(1, 8, 1, False), (8, 1, 1, False), (4, 2, 1, True), (2, 4, 1, False), (2, 2, 2, False), (4, 2, 1, False)]


@pytest.mark.parametrize(("attention", "mlp"), list(product(CUTS, CUTS)))
def test_borders_are_what_the_operators_of_the_layer_need(
    attention: tuple[int, int, int, bool], mlp: tuple[int, int, int, bool]
) -> None:
    """The border inside a layer sends forward what inference finds between the residual addition and the MLP's norm."""
    made, words = context(), []
    for dp, tp, cp, sp in (attention, mlp):
        words.append(f"dp: {dp}, tp: {tp}, cp: {cp}, sp: {str(sp).lower()}")
    layer = made.model.layers[0]
    graph = transformer_layer(layer, made.model.hidden, sequences=16, seq_len=made.workload.seq_len)
    own = {"norm2", "up", "gate", "activation", "mlp", "residual2"}
    degrees = [LayerDegrees(dp=dp, tp=tp, cp=cp, sp=sp) for dp, tp, cp, sp in (attention, mlp)]
    shares = {
        operator.name: Share(cuts=layer_cuts(operator, degrees[operator.name in own]), devices=tuple(range(8)))
        for operator in graph.operators
    }
    needed = [
        (transfer.kind, len(transfer.groups), transfer.total * 2)
        for need in needs_of(graph, shares)
        if (need.phase, need.operator, need.tensor) == (TransferPhase.FORWARD, "norm2", "residual1")
        for transfer in need.transfers
    ]
    found = [
        (b["kind"], b["groups"], b["bytes"])
        for b in borders_between(made, tree(made, words[0], f"modules: mlp, compute: {{{words[1]}}}"))
        if (b["between"], b["direction"], b.get("instead_of")) == (["0.attention", "0.mlp"], "forward", None)
    ]
    assert found == needed


def test_sums_lie_on_tensor_ranks() -> None:
    strategy = parse_strategy("tp2 cp2 dp2")
    layout = activation_layout(strategy, tuple(range(8)), summed=True)

    assert (layout.degrees, layout.partial, layout.copies) == ((2, 2, 1), 2, 1)
    assert activation_layout(strategy, tuple(range(8))).copies == 2


def test_recomputing_one_module_keeps_its_input_and_all_of_the_other() -> None:
    made = context()
    one, layer = shard(made, "dp8 mbs2"), made.model.layers[0]
    input_bytes = 2 * made.workload.seq_len * made.model.hidden * 2
    for module, other in (MODULES, MODULES[::-1]):
        strategies = tree(made, "dp: 8", f"modules: {module}, schedule: {{recompute: full}}")
        kept = float(layer_activations(made, module_of(layer, other), one).kept[0])
        again, beside = (layer_activations(made, module_of(layer, part), one) for part in (module, other))
        working = max(float((again.kept + again.gradients)[0]), float(beside.gradients[0]))
        chunk = step_costs(assign_tree(made, strategies)).chunks[0]

        assert chunk.kept_bytes == pytest.approx(made.model.layer_count * (input_bytes + kept))
        assert chunk.working_bytes == pytest.approx(working)
        again_s = made.model.layer_count * float(layer_work(made, module_of(layer, module), one).forward_s[0])
        assert chunk.parts["recompute"] == pytest.approx(again_s)


def test_sharding_and_host_of_one_module() -> None:
    whole = simulated("dp: 8")
    cut = simulated("dp: 8", "modules: mlp, memory: {zero: 3}")
    both = simulated("dp: 8", "layers: 0-23, memory: {zero: 3}")
    parameters = [result.scores.memory_bytes["parameters"][0] for result in (whole, cut, both)]
    mlp, attention = (
        24 * 2 * 7 / 8 * (one.mlp_dense + one.mixer + one.replicated)
        for one in (_parameters("mlp"), _parameters("attention"))
    )

    assert parameters[0] - parameters[1] == pytest.approx(mlp)
    assert parameters[0] - parameters[2] == pytest.approx(mlp + attention)


def _parameters(module: str) -> LayerParameters:
    model = dense_model()
    return layer_parameters(module_of(model.layers[0], module), model.hidden)


def test_collectives_inside_a_module_are_those_of_its_operators() -> None:
    """Korthikanti's figure 5 for each half of a layer: gathered before, scattered behind, in both directions."""
    made, strategy = context(), parse_strategy("tp2 dp4 mbs1 sp")
    layer, devices = made.model.layers[0], tuple(range(8))

    def inside(module: str, text: str = str(strategy)) -> dict[tuple[object, object], tuple[object, object]]:
        found = collectives_inside(made, layer, module, parse_strategy(text), devices)
        assert found is not None
        return {(one["phase"], one["kind"]): (one["count"], one["bytes"]) for one in found if one["members"] == 2}

    once = (1, 4 * made.workload.seq_len * made.model.hidden * 2.0 / 4)
    for module in MODULES:
        assert inside(module) == {
            ("forward", "all_gather"): once,
            ("forward", "reduce_scatter"): once,
            ("backward", "all_gather"): once,
            ("again", "all_gather"): once,
            ("backward", "reduce_scatter"): once,
        }
        assert set(inside(module, "tp2 dp4 mbs1")) == {("forward", "all_reduce"), ("backward", "all_reduce")}
    both = inside("")
    assert both["forward", "all_gather"] == (2, 2 * once[1])
    latent = dataclasses.replace(
        layer,
        mixer=dataclasses.replace(
            layer.attention, latent=LatentAttention(query_rank=None, key_value_rank=64, rope_head_dim=16)
        ),
    )
    assert collectives_inside(made, latent, "", strategy, devices) is None
