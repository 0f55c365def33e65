"""Cases that users met in practice (issue threads of the frameworks), one by one."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import broken_laws, dense_model, request

from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.strategies import (
    Split,
    StrategySpace,
    default_choices,
    explicit_layers_broken,
    layers_per_virtual_stage,
    parse_strategy,
)
from forerun.spaces.strategies.stages import split_is_legal


def test_layers_for_a_prediction_block_are_left_out_where_there_is_one() -> None:
    plain = request(dense_model(layers=29))
    ahead = request(replace(dense_model(layers=29), mtp_layers=1))

    assert "layers / stages" in broken_laws(plain, "tp1 pp8 dp4 zero1 split=light-mtp")
    assert not broken_laws(ahead, "tp1 pp8 dp4 zero1 split=light-mtp")
    assert Split.LIGHT_MTP not in default_choices(plain, [32])["split"]
    assert Split.LIGHT_MTP in default_choices(ahead, [32])["split"]
    assert not split_is_legal(29, 32, Split.LIGHT_MTP)  # a layer each, of which the last stage cannot give three


def test_thirty_layers_on_four_stages_need_an_uneven_split_and_lose_no_layer() -> None:
    context = request(dense_model(layers=30))

    assert "layers / stages" in broken_laws(context, "tp1 pp4 dp8 zero1")
    assert not broken_laws(context, "tp1 pp4 dp8 zero1 split=light-ends")
    table, _ = (space := StrategySpace(choices=default_choices(context, [32]), context=context)).table(0, space.size)
    for row in np.flatnonzero((table.column("pp") == 4) & (table.column("vpp") == 1)):
        strategy = table.strategy(int(row))
        assert sum(layers_per_virtual_stage(30, 4, strategy.split)) == 30


def test_deepseek_v3_folds_its_experts_on_1024_devices() -> None:
    context = request(load_model("deepseek-v3"), global_batch=8192, seq_len=4096)

    assert not broken_laws(context, "tp2 pp16 dp32 ep64 zero1 sp split=balanced")


def test_heads_message_names_law_values_and_fix() -> None:
    context = request(dense_model(heads=40, kv_heads=40))

    assert broken_laws(context, "tp16 dp1")["heads"] == (
        "40 heads are not divisible by tp=16; use 1, 2, 4, 5, 8, 10, 20 or 40"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pp2 dp4 layers=1,1", "names 2 layers, but the model has 24"),
        ("pp2 dp4 vpp2 schedule=interleaved layers=12,12", "does not go with vpp=2"),
        ("pp2 dp4 layers=10,14", None),
        ("pp2 dp4", None),
    ],
)
def test_layers_that_a_strategy_names_itself(text: str, message: str | None) -> None:
    found = explicit_layers_broken(parse_strategy(text), 24)

    assert found is None if message is None else message in str(found)


@pytest.mark.parametrize(
    ("switches", "text", "law"),
    [
        ({"cuda-graphs": "on"}, "tp2 pp2 dp8 zero1 sp recompute=full", "parts of them are CUDA graphs"),
        ({"cuda-graphs": "on"}, "tp2 pp2 dp8 zero1 sp recompute=full:3", "parts of them are CUDA graphs"),
        ({"cuda-graphs": "router"}, "tp2 dp16 ep8 zero1 sp recompute=moe", "router is in a CUDA graph"),
        ({"grouped-gemm": "off"}, "tp2 dp16 ep8 zero1 sp recompute=layernorm+moe_act", "grouped product"),
        ({"cuda-graphs": "full"}, "tp2 dp16 ep8 zero1 sp with=moe-overlap", "moe-overlap"),
        ({"overlap-p2p": "off"}, "tp2 pp2 dp8 vpp2 zero1 sp schedule=interleaved", "send to each other at once"),
        ({"dispatcher": "allgather"}, "tp2 dp16 ep8 zero1 sp with=moe-overlap", "moe-overlap"),
    ],
)
def test_switches_that_do_not_go_with_a_strategy(switches: dict[str, str], text: str, law: str) -> None:
    """Megatron-core, ``TransformerConfig.__post_init__``: it refuses each of these."""
    framework = load_framework("megatron-lm")
    context = replace(request(load_model("qwen3-30b-a3b")), framework=framework)
    assert not broken_laws(context, text)
    assert law in str(broken_laws(replace(context, framework=switched(framework, switches)), text))


def test_delayed_scaling_recomputes_neither_norms_nor_activations_of_experts() -> None:
    """Megatron-core refuses it, whose default recipe it is."""
    made = request(load_model("qwen3-30b-a3b"))
    eight = replace(made, workload=replace(made.workload, precision="fp8"), framework=load_framework("megatron-lm"))
    text = "tp2 dp16 ep8 zero1 sp recompute=layernorm"
    assert "delayed scaling recomputes neither" in str(broken_laws(eight, text))
    assert not broken_laws(replace(eight, framework=switched(eight.framework, {"fp8-recipe": "current"})), text)
