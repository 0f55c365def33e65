"""Each law of legality at its border: a strategy that is just legal, and one just beyond that breaks this law alone."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from forerun_examples import broken_laws, dense_model, moe_model, request

from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.strategies import RULES, Context
from forerun.spaces.strategies.rules import SWITCHES


def exchanged_heads() -> Context:
    """Return a request whose context-parallel ranks exchange attention heads."""
    context = request()
    return replace(context, framework=replace(context.framework, context_exchange="heads"))


def waiting_hops() -> Context:
    """Return a request whose stages wait for what they send."""
    context = request()
    return replace(context, framework=switched(load_framework("megatron-lm"), {"overlap-p2p": "off"}))


BORDERS: list[tuple[str, Callable[[], Context], str, str]] = [
    ("devices", request, "tp2 pp3 dp2 zero1 gpus=12", "tp2 pp3 dp2 zero1 gpus=10"),
    ("framework degree", lambda: request(framework="fsdp"), "dp2 zero3", "cp2 dp1 zero3"),
    ("heads", lambda: request(dense_model(heads=24)), "tp8 dp2", "tp16 dp2"),
    ("kv heads", lambda: request(dense_model(heads=24, kv_heads=8)), "tp8 dp2", "tp12 dp2"),
    (
        "kv heads",
        lambda: request(dense_model(kv_heads=4), framework="torchtitan"),
        "tp4 dp2 zero2 sp",
        "tp8 dp2 zero2 sp",
    ),
    ("heads / cp", exchanged_heads, "tp2 cp8 dp1", "tp2 cp16 dp1"),
    ("sequence / cp", lambda: request(seq_len=2052), "cp2 dp2", "cp4 dp2"),  # a rank has two parts: 2052 = 4 x 513
    ("cp kernel", lambda: request(cluster=load_cluster("dgx1-v100")), "cp1 dp2", "cp2 dp2"),
    ("experts", lambda: request(moe_model(experts=12)), "dp8 ep4", "dp8 ep8"),
    ("expert folding", lambda: request(moe_model()), "tp2 dp2 ep4 sp", "tp2 dp2 ep8 sp"),
    ("expert tensor", request, "tp2 dp2 etp1", "tp2 dp2 etp2"),
    ("schedule", request, "pp2 dp4 vpp2 schedule=interleaved", "pp2 dp4 vpp1 schedule=interleaved"),
    ("schedule", request, "pp2 dp4", "pp2 dp4 vpp2"),
    ("schedule", lambda: request(framework="generic"), "pp1 dp4", "pp1 dp4 schedule=gpipe"),
    ("schedule", lambda: request(framework="generic"), "pp4 dp2 schedule=dualpipe", "pp3 dp2 schedule=dualpipe"),
    (
        "framework schedule",
        lambda: request(framework="torchtitan"),
        "pp4 dp8 vpp2 zero2 schedule=zb-v",
        "pp4 dp8 zero2 schedule=zb-h1",
    ),
    ("framework schedule", waiting_hops, "pp4 dp4 vpp2 schedule=interleaved", "pp2 dp4 vpp2 schedule=interleaved"),
    ("layers / stages", request, "pp8 dp2", "pp16 dp2"),
    ("framework split", lambda: request(framework="nanotron"), "pp1 dp4", "pp2 dp4 split=even"),
    ("global batch", request, "dp4 mbs16", "dp4 mbs32"),
    ("microbatches", request, "pp8 dp8 vpp3 schedule=interleaved", "pp8 dp16 vpp3 schedule=interleaved"),
    (
        "switches",
        lambda: request(load_model("qwen3-30b-a3b")),
        "dp16 ep2 with=moe-overlap",
        "dp16 ep1 with=moe-overlap",
    ),
    ("framework zero", lambda: request(framework="deepspeed"), "pp2 dp4 zero1", "pp2 dp4 zero2"),
    ("shard", lambda: request(framework="torchtitan"), "dp8 zero3 shard=4", "dp8 zero3 shard=3"),
    ("shard", lambda: request(moe_model(), framework="torchtitan"), "dp8 ep4 zero3 shard=4", "dp8 ep4 zero3 shard=2"),
    ("framework shard", lambda: request(framework="torchtitan"), "cp4 dp4 zero3 shard=4", "cp4 dp4 zero3 shard=2"),
    ("framework sequence parallel", lambda: request(moe_model()), "tp2 dp2 ep2 sp", "tp2 dp2 ep2"),
    ("sequence / sp", lambda: request(seq_len=2050), "tp2 dp2 sp", "tp4 dp2 sp"),
    ("framework recompute", lambda: request(framework="deepspeed"), "dp2 recompute=full", "dp2 recompute=selective"),
    (
        "switches / recompute",
        lambda: request(load_model("qwen3-30b-a3b")),
        "dp16 ep2 with=moe-overlap recompute=moe_act",
        "dp16 ep2 with=moe-overlap recompute=moe",
    ),
    ("recompute layers", request, "pp4 dp2 recompute=full:5", "pp4 dp2 recompute=full:6"),
    (
        "framework placement",
        lambda: request(framework="mindspeed"),
        "pp2 dp2 placement=tp-cp-ep-dp-pp",
        "pp2 dp2 placement=tp-cp-ep-pp-dp",
    ),
    ("recompute modules", lambda: request(moe_model()), "dp2 recompute=moe", "dp2 recompute=moe+moe_act"),
    ("duplicate", request, "dp2 zero1", "dp1 zero1"),
    ("duplicate", request, "tp2 dp2 sp", "tp1 dp2 sp"),
    ("duplicate", request, "pp2 dp2 placement=tp-cp-ep-pp-dp", "pp2 dp1 placement=tp-cp-ep-pp-dp"),
    ("duplicate", request, "pp2 dp2 placement=tp-cp-ep-pp-dp", "pp1 dp2 placement=tp-cp-ep-pp-dp"),
    ("software", request, "tp8 dp2 sp with=tp-comm-overlap", "tp16 dp2 sp with=tp-comm-overlap"),
]
"""Laws with a request, a strategy that keeps it, and one that breaks it."""


def test_every_law_has_a_border() -> None:
    assert {code for code, *_ in BORDERS} == {rule.code for rule in (*RULES, SWITCHES)}


@pytest.mark.parametrize(
    ("code", "make", "legal", "illegal"), BORDERS, ids=[f"{code}: {illegal}" for code, _, _, illegal in BORDERS]
)
def test_one_step_beyond_the_border_breaks_this_law_alone(
    code: str, make: Callable[[], Context], legal: str, illegal: str
) -> None:
    context = make()

    assert not broken_laws(context, legal)
    assert set(broken_laws(context, illegal)) == {code}
