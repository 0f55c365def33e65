"""Splits of operator graphs by the closed forms and event by event: one legality, one step time within 5 %."""

import random

import pytest

from forerun.search.opgraph import resolve_request, scored_rows
from forerun.search.opgraph.request import LayeredRequest
from forerun.search.opgraph.space import enumerate_splits
from forerun.search.opgraph.tree import simulate_split
from forerun.spaces.opgraph.batch import PerDevice

CASES = (
    ("alexnet", "dgx1-v100", 16),
    ("vgg19", "abci-v100", 16),
    ("unet", "dgx-a100-80", 4),
    ("dlrm-516m", "dgx1-v100", 32),
    ("dlrm-516m", "dgx-a100-80", 8),
    ("cosmoflow-128", "aws-p3", 8),
    ("resnet50", "dgx-h100", 8),
)


@pytest.mark.parametrize(("model", "cluster", "gpus"), CASES)
def test_a_split_takes_as_long_in_closed_form_as_event_by_event(model: str, cluster: str, gpus: int) -> None:
    request = LayeredRequest(model=model, cluster=cluster, global_batch=PerDevice(16), gpus=str(gpus))
    setting = resolve_request(request)
    assert setting.counts is not None
    space = enumerate_splits(setting, setting.counts)
    drawn = random.Random(f"{model} {cluster}")
    # One of every family, so that none is left out: all that is legal can be simulated.
    families: dict[str, list[int]] = {}
    for place, split in enumerate(space.splits):
        if split.segments <= 4:
            families.setdefault(split.family, []).append(place)
    for family, places in families.items():
        place = drawn.choice(places)
        split, batch = space.splits[place], space.batches[place]
        (row,) = scored_rows(setting.context, [split], [batch])
        simulated = simulate_split(setting, split).row
        assert simulated["step_time_s"] == pytest.approx(row.step_time_s, rel=0.05), (family, str(split))
        assert simulated["gpus"] == row.gpus
