"""Strategy trees: what goes down from node to node, what users may write, and what they are told when it is wrong."""

from pathlib import Path

import pytest
from forerun_examples import request

from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Recompute, Schedule
from forerun.spaces.trees import Computation, Node, TreeError, TreeStrategies, legal_tree, model_layers, resolve_tree
from forerun.spaces.trees.document import at_line, parse_tree, read_tree

LAYERS = ("embedding", *map(str, range(8)), "head")

TWO = """\
schedule: {order: 1f1b, microbatches: 6}
compute: {tp: 2}
memory: {zero: 1}
children:
  - name: lower
    layers: [embedding, 0-11]
    devices: 0-7
    children:
      - {name: recomputed, layers: 0-3, schedule: {recompute: full}}
  - name: upper
    layers: [12-23, head]
    devices: 8-15
    compute: {tp: 4}
"""
ALIKE = """\
schedule: {microbatches: 1}
compute: {dp: 8}
children:
"""


def context() -> Context:
    return request(framework="generic", global_batch=48)


def legal(text: str) -> TreeStrategies:
    """Return the tree of a text; errors have file and line, as users see them."""
    made = context()
    return legal_tree(made, resolve_tree(parse_tree(text), model_layers(made.model)))


def test_settings_go_down_to_every_layer() -> None:
    found = {
        leaf.layer: (one.tp, one.dp, one.mbs, one.zero, one.recompute)
        for stage, row in zip(legal(TWO).tree.stages, legal(TWO).of_leaf, strict=True)
        for leaf, one in zip(stage.leaves, row, strict=True)
    }

    assert found["embedding"] == (2, 4, 2, 1, Recompute.NONE)
    assert found["3"] == (2, 4, 2, 1, Recompute.FULL)
    assert found["4"] == (2, 4, 2, 1, Recompute.NONE)
    assert found["12"] == found["head"] == (4, 2, 4, 1, Recompute.NONE)
    assert list(found) == list(model_layers(context().model))


def test_modules_are_leaves_where_they_differ() -> None:
    tree = legal(ALIKE + "  - {modules: mlp, layers: 1-2, compute: {dp: 4, tp: 2}}\n  - {modules: attention}").tree

    assert [leaf.name for leaf in tree.leaves][:7] == [
        "embedding",
        "0",
        "1.attention",
        "1.mlp",
        "2.attention",
        "2.mlp",
        "3",
    ]
    assert [leaf.compute.tp for leaf in tree.leaves][:4] == [1, 1, 1, 2]


def test_heads_bind_attention_alone() -> None:
    """16 heads do not divide by 32 ranks, but an MLP and a vocabulary do."""
    text = (
        ALIKE.replace("8", "32")
        + "  - {modules: mlp, compute: {tp: 32, dp: 1}}\n  - {layers: head, compute: {tp: 32, dp: 1}}"
    )
    made = request(framework="generic", global_batch=64)
    found = legal_tree(made, resolve_tree(parse_tree(text), model_layers(made.model)))

    assert [one.tp for one in found.of_leaf[0]][:3] == [1, 1, 32]
    assert found.of_leaf[0][-1].tp == 32


def test_nodes_with_devices_are_stages() -> None:
    tree = resolve_tree(
        Node(
            compute=Computation(dp=2),
            schedule=parse_tree("schedule: {order: interleaved, microbatches: 4}").schedule,
            children=tuple(
                Node(layers=layers, devices=devices, place=("children", number))
                for number, (layers, devices) in enumerate(
                    ((("embedding", "0-1"), (0, 1)), (("2-3",), (2, 3)), (("4-5",), (0, 1)), (("6-7", "head"), (2, 3)))
                )
            ),
        ),
        LAYERS,
    )

    assert tree.groups == ((0, 1), (2, 3))
    assert tree.rank_of_stage == (0, 1, 0, 1)
    assert tree.order == Schedule.INTERLEAVED
    assert tree.device_count == 4


def test_a_tree_without_devices_is_one_stage() -> None:
    tree = resolve_tree(parse_tree("{compute: {dp: 2, tp: 2, cp: 2}, schedule: {microbatches: 1}}"), LAYERS)

    assert tree.groups == (tuple(range(8)),)
    assert [leaf.layer for leaf in tree.leaves] == list(LAYERS)


WRONG = {
    "missing layer": (TWO.replace("12-23", "12-24"), "line 11, children.1.layers: there is no layer 24; the model has"),
    "no layer of the parent": (TWO.replace("layers: 0-3", "layers: 13"), "line 9, children.0.children.0.layers: there"),
    "root without all layers": ("layers: [embedding, 0-3]\n" + TWO, "line 1, layers: the root is for all layers"),
    "root without any": ("layers: []\n" + TWO, "leaves out embedding, 0, 1, 2, 3, 4, …; drop its layers"),
    "a name that is none": (TWO.replace("embedding", "embeding"), "did you mean embedding"),
    "layer without stage": (TWO.replace("12-23", "13-23"), "every layer needs a stage, but none has 12"),
    "layer twice": (TWO.replace("12-23", "11-23"), "line 11, children.1.layers: layer 11 belongs to children.0 .lower"),
    "stages out of order": (
        TWO.replace("[embedding, 0-11]", "[12-23, head]", 1)
        .replace("layers: [12-23, head]\n    devices: 8", "layers: [embedding, 0-11]\n    devices: 8")
        .replace("layers: 0-3", "layers: 12-13"),
        "are in model order",
    ),
    "tp that does not divide": (
        TWO.replace("tp: 4", "tp: 12").replace("8-15", "8-19"),
        "line 13, children.1.compute.tp: 16 heads are not divisible by tp=12; use 1, 2, 4, 8 or 16",
    ),
    "degrees that are not the devices": (
        TWO.replace("tp: 4", "tp: 3"),
        "the 8 devices 8-15 of its stage are not divisible by tp.cp = 3.1 = 3; use a product",
    ),
    "batch that does not divide": (TWO.replace("microbatches: 6", "microbatches: 24"), "48 is not divisible by"),
    "no microbatches": (TWO.replace(", microbatches: 6", ""), "the root names the microbatches"),
    "order below the root": (TWO.replace("{recompute: full}", "{order: gpipe}"), "order applies to the whole tree"),
    "order that is none": (TWO.replace("order: 1f1b", "order: 2f2b"), "line 1, schedule.order: unknown schedule"),
    "recompute that is none": (TWO.replace("recompute: full", "recompute: all"), "line 9, .*unknown recompute"),
    "misspelt key": (
        TWO.replace("devices: 8-15", "device: 8-15"),
        "line 12, children.1.device: .*did you mean devices",
    ),
    "devices twice": (TWO.replace("devices: 8-15", "devices: 8-15, 9"), "device 9 is named twice"),
    "devices that are none": (TWO.replace("devices: 8-15", "devices: all"), "devices are numbers or ranges"),
    "stages that share some": (TWO.replace("devices: 8-15", "devices: 4-11"), "stages share all devices or none"),
    "stage in a stage": (TWO.replace("recomputed, ", "recomputed, devices: 0, "), "stages do not nest"),
    "gradients sharded alone": (TWO.replace("zero: 1", "gradients: sharded"), "gradients cannot be sharded where opt"),
    "zero twice": (TWO.replace("zero: 1", "zero: 1, optimizer: sharded"), "give either it or them"),
    "wrong stage for the order": (TWO.replace("1f1b", "zb-v"), "children.1.devices: zb-v runs virtual stage 1 of 2"),
    "cut of a transformer": (TWO.replace("tp: 4", "cut: {batch: 8}"), "a transformer is cut by degrees"),
    "limits of some stages": (TWO.replace("name: upper", "schedule: {in_flight: 2}"), "in_flight limits all stages"),
    "module that is none": (ALIKE + "  - {modules: mpl}", "line 4, children.0.modules: unknown module 'mpl'; did you"),
    "module of an end": (
        ALIKE + "  - {modules: mlp, layers: [embedding, 0]}",
        "children.0.layers: embedding has no mod",
    ),
    "norms apart": (
        ALIKE + "  - {modules: norm}",
        "norms belong to the module whose input they make; use attention or",
    ),
    "stage of modules": (
        ALIKE + "  - {modules: mlp, devices: 0-7}",
        "line 4, children.0.devices: a stage has whole lay",
    ),
    "root of modules": ("modules: mlp\n" + ALIKE + "  - {}", "line 1, modules: the root is for all layers, but"),
    "module twice": (
        ALIKE + "  - {modules: mlp, layers: 0-3}\n  - {modules: [attention, mlp], layers: 3-4}",
        "line 5, children.1.layers: mlp of layer 3 belongs to children.0 already",
    ),
    "module below another": (
        ALIKE + "  - {modules: mlp, children: [{modules: attention}]}",
        "children.0.children.0.modules: unknown module 'attention'; known: mlp",
    ),
    "module of a layer that is not there": (
        ALIKE + "  - {modules: mlp, layers: 24}",
        "children.0.layers: there is no la",
    ),
    "heads of a module": (
        ALIKE.replace("8", "24") + "  - {modules: attention, compute: {tp: 24, dp: 1}}",
        "line 4, children.0.compute.tp: 16 heads are not divisible by tp=24; use 1, 2, 4, 8 or 16",
    ),
    "inner width": (
        ALIKE.replace("8", "3") + "  - {modules: mlp, compute: {tp: 3, dp: 1}}",
        "line 4, children.0.compute.tp: the inner width 4096 of the MLP is not divisible by tp=3; use 1, 2, 4",
    ),
    "degrees of a module": (
        ALIKE + "  - {modules: mlp, compute: {tp: 4}}",
        "line 4, children.0.compute: the 8 devices 0-7 of its stage are not dp.tp.cp = 8.4.1 = 32; leave dp out",
    ),
    "experts of attention": (ALIKE + "  - {modules: attention, compute: {ep: 2}}", "compute.ep: attention has no expe"),
    "core of an mlp": (
        ALIKE + "  - {modules: mlp, schedule: {recompute: selective}}",
        "line 4, children.0.schedule.recompute: selective recomputes the core of attention, which an mlp has not",
    ),
    "too many devices": (TWO.replace("8-15", "8-8199"), "tree|occupies|devices"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_mistakes_name_the_node(name: str, tmp_path: Path) -> None:
    text, words = WRONG[name]
    path = tmp_path / "tree.yaml"
    path.write_text(text)

    def read() -> None:
        root, document = read_tree(path)
        try:
            legal_tree(context(), resolve_tree(root, model_layers(context().model)))
        except TreeError as error:
            raise at_line(error, document) from None

    with pytest.raises(RequestError, match=words) as caught:
        read()
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value)
