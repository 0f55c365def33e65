"""Weights of eight-bit training: in half precision with cached copies, or in eight bit alone."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.simulator import score
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.costs import stream_operator
from forerun.simulator.events import step_costs
from forerun.simulator.layer.blocks import layer_operators
from forerun.simulator.layer.eight_bit import recipe_of
from forerun.simulator.layer.shard import parameter_bytes, shard_of
from forerun.simulator.replicas.reduction import REPLICA_DEGREES, ReplicaCosts, Replicas, replica_costs
from forerun.simulator.stages.parameters import stage_parameters
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.models.parameters import parameter_count
from forerun.spaces.strategies import Context, parse_strategy, table_of
from forerun.spaces.workload import Workload

MODEL = load_model("llama3-8b")
TABLES = 2 * MODEL.vocab * MODEL.hidden
LAYERS = parameter_count(MODEL) - TABLES


def context(setting: str, precision: str = "fp8", framework: str = "megatron-lm") -> Context:
    return Context(
        model=MODEL,
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=64, seq_len=4096, precision=precision),
        framework=switched(load_framework(framework), {"fp8-params": setting}),
    )


def costs(made: Context, text: str) -> ReplicaCosts:
    strategy, one = parse_strategy(text), np.ones(1)
    layers = np.array([[[float(MODEL.layer_count)]], [[1.0]], [[1.0]]])
    degrees = {axis: np.array([float(getattr(strategy, axis))]) for axis in REPLICA_DEGREES}
    parameters = stage_parameters(made, layers, one * strategy.tp, one, one)
    return replica_costs(made, Replicas(parameters=parameters, **degrees))


@pytest.mark.parametrize(
    ("framework", "setting", "precision", "layer_bytes"),
    [
        ("megatron-lm", "off", "bf16", 2.0),
        ("megatron-lm", "on", "bf16", 2.0),
        ("megatron-lm", "off", "fp8", 4.0),
        ("megatron-lm", "on", "fp8", 2.0),
        ("megatron-lm", "on", "mxfp8", 2.0625),
        ("generic", "off", "fp8", 2.0),
    ],
)
def test_weights_have_the_bytes_of_their_layouts(
    framework: str, setting: str, precision: str, layer_bytes: float
) -> None:
    held = costs(context(setting, precision, framework), "tp1 dp8 mbs1 zero1").parameter_bytes
    assert held.item() == pytest.approx(layer_bytes * LAYERS + 2 * TABLES, rel=1e-4)


def test_they_are_gathered_in_one_byte() -> None:
    off, on = (costs(context(setting), "tp1 dp8 mbs1 zero1").gather_s.item() for setting in ("off", "on"))
    assert on / off == pytest.approx((LAYERS / 2 + TABLES) / (LAYERS + TABLES), rel=0.05)
    half = [costs(context(setting, "bf16"), "tp1 dp8 mbs1 zero1").gather_s.item() for setting in ("off", "on")]
    assert half[0] == half[1]


@pytest.mark.parametrize("setting", ["off", "on"])
@pytest.mark.parametrize("text", ["tp2 dp4 mbs1 zero1 sp", "tp1 pp2 dp4 mbs1 zero1"])
def test_both_levels_hold_them(setting: str, text: str) -> None:
    made, strategy = context(setting), parse_strategy(text)
    scores = score(made, table_of([strategy]))
    parts = ("parameters", "gradients", "optimizer", "buffers")
    fixed = sum(float(scores.memory_bytes[part][0]) for part in parts)
    stages = step_costs(assign(made, strategy)).stages
    assert fixed == pytest.approx(stages[int(scores.peak_stage[0])].fixed_bytes)


@pytest.mark.parametrize(
    ("recipe", "moved"), [("delayed", 4.0), ("current", 6.0), ("block", 4.0625), ("row", 8.0), ("mx", 4.0)]
)
def test_inputs_are_cast_as_their_scales_ask(recipe: str, moved: float) -> None:
    """Bytes per value: read, again for the largest of them, and written along rows and columns."""
    made = recipe_context(recipe)
    chosen = recipe_of(made)
    assert chosen is not None and stream_operator(chosen.cast).forward.bytes_per_element == moved
    layer = made.model.layers[0]
    shard = shard_of(made, table_of([parse_strategy("tp1 dp8 mbs1 zero1")]), np.zeros(1, dtype=np.intp))
    collected = layer_operators(made, layer, shard).records
    casts = [one for one in collected if one.name.startswith("cast to") and one.direction == "forward"]
    values = sum(float(one.memory_s[0]) for one in casts) * made.cluster.device.memory_bytes_per_s / moved  # type: ignore[index]
    assert values == pytest.approx(4096 * (3 * MODEL.hidden + 14336))  # inputs of the four products


def test_weights_are_cast_by_every_microbatch_unless_kept() -> None:
    def weights(framework: str) -> float:
        made = replace(context("off", framework=framework), cluster=load_cluster("dgx-h100"))
        shard = shard_of(made, table_of([parse_strategy("tp1 dp8 mbs1 zero1")]), np.zeros(1, dtype=np.intp))
        found = layer_operators(made, made.model.layers[0], shard).records
        return sum(float(one.seconds[0]) for one in found if one.name == "cast weights to fp8")  # type: ignore[index]

    assert weights("generic") > 0 == weights("megatron-lm")


def test_tensor_cores_of_blackwell_read_one_copy_of_weights_with_one_scale() -> None:
    def held(recipe: str, cluster: str) -> float:
        made = replace(recipe_context(recipe), cluster=load_cluster(cluster))
        return parameter_bytes(made)[0]

    assert held("current", "dgx-h100") == 4.0 and held("current", "dgx-b200") == 3.0
    assert held("block", "dgx-h100") == held("block", "dgx-b200") == pytest.approx(4.0, abs=1e-3)


def test_blocks_that_cross_slices_are_gathered_in_half_precision() -> None:
    made = context("on", "mxfp8")
    assert parameter_bytes(made) == (2 * (1 + 1 / 32), 2.0)


def recipe_context(recipe: str) -> Context:
    made = context("off", "mxfp8" if recipe == "mx" else "fp8")
    cluster = load_cluster("dgx-b200" if recipe == "mx" else "dgx-h100")
    return replace(made, cluster=cluster, framework=replace(made.framework, eight_bit_recipe=recipe))
