"""Trees near a flat strategy: what a variation changes, where, and that its text reads back as it is."""

import pytest
from forerun_examples import request

from forerun.spaces.strategies import Context, Recompute, parse_strategy
from forerun.spaces.trees import TreeStrategies, flat_of, legal_tree, model_layers, resolve_tree, tree_yaml
from forerun.spaces.trees.document import parse_tree
from forerun.spaces.trees.vary import Cutting, Variation, layers_of, varied_tree

CONTEXT = request(framework="generic", global_batch=64)


def legal(variation: Variation, context: Context = CONTEXT) -> TreeStrategies:
    """Return a variation as a legal tree, on the way through its text."""
    again = parse_tree(tree_yaml(varied_tree(context, variation)))
    return legal_tree(context, resolve_tree(again, model_layers(context.model)))


@pytest.mark.parametrize("text", ["tp2 pp2 dp4 mbs1 zero1", "dp8 mbs1", "pp4 vpp2 dp2 schedule=interleaved"])
def test_no_variation_is_the_strategy(text: str) -> None:
    strategy = parse_strategy(text)

    assert flat_of(CONTEXT, legal(Variation(strategy=strategy))) == strategy
    assert Variation(strategy=strategy).changes == ()


def test_first_layers_of_every_stage_are_recomputed() -> None:
    tree = legal(
        Variation(strategy=parse_strategy("pp2 dp4 recompute=full"), recompute=Recompute.NONE, recomputed=(3, 1))
    )

    found = [leaf.layer for leaf in tree.tree.leaves if leaf.recompute == Recompute.FULL]
    assert found == ["0", "1", "2", "12"]


@pytest.mark.parametrize("module", ["attention", "mlp"])
def test_one_module_is_recomputed(module: str) -> None:
    variation = Variation(strategy=parse_strategy("pp2 dp4"), recomputed=(0, 12), module=module)
    tree = legal(variation)

    again = [leaf.name for leaf in tree.tree.leaves if leaf.recompute == Recompute.FULL]
    assert again == [f"{layer}.{module}" for layer in range(12, 24)]
    assert variation.changes == (f"the {module} of 0 to 12 layers a stage recomputed whole",)


def test_modules_and_vocabulary_are_cut_apart() -> None:
    variation = Variation(
        strategy=parse_strategy("tp2 pp2 dp4 mbs2 sp"),
        attention=Cutting(tp=1),
        mlp=Cutting(tp=4, sp=True),
        vocabulary=Cutting(tp=8, sp=True),
        recomputed=(2, 2),
    )
    tree = legal(variation)
    found = {
        leaf.name: (one.tp, one.dp, one.sp, one.recompute == Recompute.FULL)
        for stage, row in zip(tree.tree.stages, tree.of_leaf, strict=True)
        for leaf, one in zip(stage.leaves, row, strict=True)
    }

    assert found["embedding"] == found["head"] == (8, 1, True, False)
    assert found["1.attention"] == (1, 8, False, True)
    assert found["13.mlp"] == (4, 2, True, True)
    assert found["23.mlp"] == (4, 2, True, False)
    assert variation.changes == (
        "attention tp 1",
        "mlp tp 4 sp",
        "vocabulary tp 8 sp",
        "2 layers a stage recomputed whole",
    )


def test_layers_of_a_stage_are_numbers() -> None:
    stages = varied_tree(CONTEXT, Variation(strategy=parse_strategy("pp24 dp1"))).children

    assert [layers_of(stage) for stage in stages] == [(number,) for number in range(24)]
