"""The strategy that a refused export names is one that the same format takes, laws of its framework included."""

import re

import pytest

from forerun.search.formats import Format, writable
from forerun.search.formats.express import express, launch_in
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Context, parse_strategy
from forerun.spaces.workload import Workload

SEARCHED = (
    ("llama3-70b", "megatron-lm", "tp8 pp2 dp4 mbs1 zero1 sp with=tp-comm-overlap"),
    ("llama3-70b", "megatron-lm", "tp4 pp4 dp2 cp2 mbs1 vpp5 zero1 sp schedule=interleaved placement=tp-cp-ep-pp-dp"),
    ("llama3-70b", "megatron-lm", "tp2 pp4 dp8 mbs1 zero1 sp recompute=selective layers=17,21,21,21"),
    ("qwen3-30b-a3b", "megatron-lm", "tp1 pp2 dp32 ep8 mbs2 vpp2 zero1 recompute=layernorm schedule=interleaved"),
    (
        "deepseek-v3",
        "nemo",
        "tp2 pp4 dp64 ep64 mbs1 vpp4 zero1 sp recompute=mla_up_proj schedule=interleaved split=light-mtp",
    ),
    ("qwen2.5-7b", "deepspeed", "tp2 pp1 dp8 mbs2 zero1"),
    ("llama3-8b", "torchtitan", "tp2 pp2 dp8 cp2 mbs1 zero2 shard=4 sp recompute=full"),
    ("llama3-8b", "fsdp", "tp1 pp1 dp16 mbs1 zero3 shard=8 recompute=full"),
)


@pytest.mark.parametrize("item", writable(), ids=lambda item: item.name)
@pytest.mark.slow
def test_the_nearest_strategy_is_written(item: Format) -> None:
    for model, framework, text in SEARCHED:
        workload = Workload(global_batch=768, seq_len=4096)
        context = Context(
            model=load_model(model),
            cluster=load_cluster("dgx-h100"),
            workload=workload,
            framework=load_framework(framework),
        )
        try:
            express(item, launch_in(context, parse_strategy(text), name="x"), context)
        except RequestError as error:
            match = re.search(r"nearest that it can express: ([^,]+(?:,\d+)*)", str(error))
            if match is not None:
                assert express(item, launch_in(context, parse_strategy(match[1]), name="x"), context)
