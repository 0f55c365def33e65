"""Published rates and orders of convolutional training, with the tolerance that the cost rules reach."""

import dataclasses

import numpy as np
import pytest

from forerun.simulator.opgraph import GraphContext, score_splits
from forerun.spaces.clusters import load_cluster, load_device
from forerun.spaces.opgraph import load_graph_model
from forerun.spaces.opgraph.profile import load_graph_profile
from forerun.spaces.opgraph.split import Split, parse_split


@pytest.mark.parametrize(
    ("model", "device", "precision", "batch", "published"),
    [
        # tensorflow.org performance/benchmarks, May 2017, synthetic data (Apache-2.0).
        ("resnet50", "p100-sxm2", "fp32", 64, 219),
        ("vgg16", "p100-sxm2", "fp32", 64, 154),
        ("inception-v3", "p100-sxm2", "fp32", 64, 142),
        # NVIDIA DeepLearningExamples, ResNet-50 v1.5 (Apache-2.0).
        ("resnet50", "a100-sxm4-40", "tf32", 256, 909),
        ("resnet50", "a100-sxm4-40", "fp16", 256, 2375),
        ("resnet50", "v100-sxm2-16", "fp32", 128, 367),
    ],
)
def test_one_gpu_within_a_quarter(model: str, device: str, precision: str, batch: int, published: float) -> None:
    context = GraphContext(
        model=load_graph_model(model),
        cluster=dataclasses.replace(load_cluster("abci-v100"), device=load_device(device)),
        profile=load_graph_profile("pytorch-ddp"),
        precision=precision,
    )
    assert batch / float(score_splits(context, [Split()], [batch]).step_time_s[0]) == pytest.approx(published, rel=0.25)


@pytest.mark.parametrize("gpus", [16, 32, 64, 256, 1024])
def test_strategies_stand_in_the_published_order(gpus: int) -> None:
    """ParaDL, figure 2, ResNet-50: seconds per sample of data, data+filter, data+spatial, then filter and channel."""
    nodes = gpus // 4
    asked = [(f"data{gpus}", 64 * gpus), (f"data{nodes} filter4", 64 * nodes), (f"data{nodes} spatial4", 64 * nodes)]
    asked += [(f"filter{gpus}", 64)] if gpus <= 64 else []
    context = GraphContext(
        model=load_graph_model("resnet50"),
        cluster=load_cluster("abci-v100"),
        profile=load_graph_profile("chainermn"),
        precision="fp32",
    )
    splits, batches = [parse_split(text) for text, _ in asked], [batch for _, batch in asked]
    seconds = (score_splits(context, splits, batches).step_time_s / np.array(batches)).tolist()
    assert seconds[0] < min(seconds[1:])
    if gpus > 128:  # below, the two hybrids were measured within the error of reading the figure
        assert seconds[1] < seconds[2]
    assert max(seconds[1:3]) < min(seconds[3:], default=float("inf"))
