"""Blocks of modules: named in trees and mixtures as layers are."""

from forerun.search.request.operator_graphs import OPERATOR_GRAPHS
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.events import graph_plan
from forerun.spaces.clusters import load_cluster
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.graphs.exported_file import _block as of_metadata
from forerun.spaces.opgraph.graphs.onnx_file import _block as of_name
from forerun.spaces.opgraph.profile import load_graph_profile
from forerun.spaces.trees.document import parse_tree

MODEL = load_graph_model("resnet50")
TREE = """\
schedule: {microbatches: 1}
compute: {cut: {batch: 8}}
children:
  - {layers: layer2..layer3.1, compute: {cut: {batch: 4, channels: 2}}}
"""


def context() -> GraphContext:
    return GraphContext(
        model=MODEL,
        cluster=load_cluster("dgx1-v100"),
        profile=load_graph_profile("pytorch-ddp"),
        precision="fp32",
        global_batch=64,
    )


def test_blocks_nest() -> None:
    assert set(MODEL.blocks["layer1.0"]) < set(MODEL.blocks["layer1"])
    assert {"layer4", "layer4.2"} < MODEL.blocks.keys()
    assert "conv1" not in {name for names in MODEL.blocks.values() for name in names}


def test_trees_and_mixtures_name_them() -> None:
    plan = graph_plan(context(), parse_tree(TREE), 64)
    own = {*MODEL.blocks["layer2"], *MODEL.blocks["layer3.0"], *MODEL.blocks["layer3.1"]}
    halved = {name for name, share in plan.shares.items() if [cut.degree for cut in share.cuts] == [4, 2]}
    assert halved == own
    mixture = OPERATOR_GRAPHS.parse(context(), "data8, layer2: data4 filter2")
    assert str(mixture) == "data8, layer2: data4 filter2"
    assert {o.name for o in MODEL.operators if str(mixture.of(o.name)) != "data8"} == set(MODEL.blocks["layer2"])


def test_modules_of_exported_files() -> None:
    stack = (
        "L__self__,,torch.nn.Sequential;L__self__2_0,2.0,torch.nn.Sequential;L__self__2_0.conv,2.0.conv,torch.nn.Conv2d"
    )
    assert of_metadata({"nn_module_stack": stack}) == "2.0.conv"
    assert of_metadata(None) == of_metadata({"nn_module_stack": 3}) == of_metadata({"nn_module_stack": "x"}) == ""
    assert of_name("/layer1/layer1.0/conv1/Conv") == "layer1.0.conv1"
    assert of_name("/head/Gemm") == "head" and of_name("Gemm_3") == ""
