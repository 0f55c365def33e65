"""A host launches operators: a layer with more of them keeps it busy for longer, a module for its share."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import request

from forerun.simulator.layer.kinds import layer_kinds
from forerun.simulator.layer.times import host_passes_s, launched_share
from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.models.model import Layer, MixtureOfExperts, Model
from forerun.spaces.strategies import Recompute


def first_layer(model: Model) -> Layer:
    return next(layer for layer in model.layers if not isinstance(layer.mlp, MixtureOfExperts))


def test_attention_and_feed_forward_have_half_each() -> None:
    model = load_model("llama3-8b")
    layer = first_layer(model)
    assert launched_share(layer, model.hidden) == 1.0
    for module in ("attention", "mlp"):
        assert launched_share(replace(layer, module=module), model.hidden) == 0.5


def test_latent_attention_launches_its_low_rank_products_too() -> None:
    model = load_model("deepseek-v3")
    layer = first_layer(model)
    operators = len(layer.attention.steps(model.hidden))
    assert operators > 4
    assert launched_share(layer, model.hidden) == pytest.approx(0.5 * (operators + 2) / 6 + 0.5)


def test_shared_experts_are_a_feed_forward_beside_the_routed_ones() -> None:
    model = load_model("deepseek-v3")
    routed = next(layer for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts))
    assert isinstance(routed.mlp, MixtureOfExperts)
    alone = replace(routed, mlp=replace(routed.mlp, shared_hidden=0))
    assert launched_share(routed, model.hidden) - launched_share(alone, model.hidden) == 0.5


@pytest.mark.parametrize(
    ("setting", "dense", "mixture"),
    # Of 44 launches in a graph 7 are left; a mixture with shared experts has four of six parts besides attention.
    [("off", 1.0, 1.0), ("attn", 0.5 * 51 / 44, None), ("mlp", 7 / 44, None), ("on", 7 / 44, 7 / 44)],
)
def test_graphs_launch_the_parts_that_they_hold(setting: str, dense: float, mixture: float | None) -> None:
    profile = switched(load_framework("megatron-lm"), {"cuda-graphs": setting})
    model, routed = load_model("llama3-8b"), load_model("mixtral-8x7b")
    assert launched_share(first_layer(model), model.hidden, profile.graphed) == pytest.approx(dense)
    if mixture is not None:
        assert launched_share(routed.layers[0], routed.hidden, profile.graphed) == pytest.approx(mixture)


def test_graphs_of_the_router_leave_what_moves_tokens() -> None:
    routed = load_model("qwen3-30b-a3b")
    shares = [
        launched_share(
            routed.layers[0], routed.hidden, switched(load_framework("nemo"), {"cuda-graphs": setting}).graphed
        )
        for setting in ("attn", "router")
    ]
    assert shares[0] - shares[1] == pytest.approx(0.25 * (1 - 7 / 44))


def test_full_recomputation_launches_what_a_layer_has_once_more() -> None:
    context = replace(request(), model=load_model("deepseek-v3"))
    kinds = layer_kinds(context.model)
    one, kind = np.zeros((len(kinds), 1)), kinds.index(replace(first_layer(context.model), name="", count=1))
    one[kind] = 1.0
    none, full = (
        sum(host_passes_s(context, one, np.array([recompute]), np.ones(1), 1.0))[0]
        for recompute in (Recompute.NONE, Recompute.FULL)
    )
    share = launched_share(kinds[kind], context.model.hidden)
    assert none == pytest.approx(share * context.framework.host_layer_s / context.cluster.device.host_speed)
    assert full == pytest.approx(none * 4 / 3)
