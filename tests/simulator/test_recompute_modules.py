"""Recompute of modules and of some layers: memory and time lie between nothing and whole layers, as they should."""

import dataclasses

import numpy as np
import pytest

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.simulator.assignment.memory import stage_memory
from forerun.simulator.assignment.of_strategy import assign
from forerun.spaces.frameworks import resolve_framework
from forerun.spaces.strategies import Context, parse_strategy, table_of
from forerun.spaces.strategies.framework_laws import separate_norms
from forerun.spaces.strategies.stage_laws import broken_laws

DENSE = "tp4 pp4 dp4 mbs1 zero1 sp"
MIXTURE = "tp1 pp8 dp8 ep8 mbs1 zero1 split=balanced"
CHEAP = "layernorm+moe_act+mla_up_proj"


def context(model: str) -> Context:
    return resolve(Request(model=model, cluster="dgx-h100", global_batch=256, seq_len=4096)).context


@pytest.mark.parametrize(
    ("model", "flat", "cheaper_first"),
    [
        ("llama3-70b", DENSE, ["none", "mlp", "full"]),
        ("deepseek-v3", MIXTURE, ["none", "mla_up_proj", "layernorm+mla_up_proj", CHEAP, "full"]),
        ("deepseek-v3", MIXTURE, ["none", "shared_experts", "moe", "layernorm+moe", "full"]),
        ("llama3-70b", DENSE, ["none", "full:2", "full:5", "full:10", "full:19", "full"]),
        ("deepseek-v3", MIXTURE, ["none", "full:1", "full:4", "full:7", "full"]),
    ],
)
def test_what_is_recomputed_costs_time_and_saves_memory(model: str, flat: str, cheaper_first: list[str]) -> None:
    one = context(model)
    strategies = [parse_strategy(f"{flat} recompute={kind}") for kind in cheaper_first]
    assert not any(broken_laws(strategy, one) for strategy in strategies)
    scores = score(one, table_of(strategies))
    assert np.all(np.diff(scores.step_time_s) > 0)
    assert np.all(np.diff(scores.peak_memory_bytes) < 0)


def test_norms_that_run_inside_products_are_nothing_to_recompute() -> None:
    """Llama 3 70B of mbridge_skill_cards peaked at 58.8 GB without and at 59.6 GB with it."""
    assert broken_laws(parse_strategy(f"{DENSE} recompute=layernorm"), context("llama3-70b"))
    experts, latent = context("mixtral-8x7b"), context("deepseek-v3")
    dense, mixture = latent.model.layers[0], latent.model.layers[-1]
    assert [separate_norms(latent.framework, layer) for layer in (dense, mixture)] == [1, 2]
    assert separate_norms(experts.framework, experts.model.layers[0]) == 1
    generic = resolve_framework("generic")
    assert separate_norms(generic, experts.model.layers[0]) == 2


def test_recompute_of_norms_costs_little_for_what_it_saves() -> None:
    one = dataclasses.replace(context("llama3-70b"), framework=resolve_framework("generic"))
    none, norms, full = score(
        one, table_of([parse_strategy(f"{DENSE} recompute={k}") for k in ("none", "layernorm", "full")])
    ).step_time_s
    assert norms - none < 0.1 * (full - none)


@pytest.mark.parametrize("kind", ["layernorm+moe_act+mla_up_proj", "full:3", "moe"])
def test_virtual_stages_have_them_too(kind: str) -> None:
    one = context("deepseek-v3")
    looped = parse_strategy(f"tp1 pp4 dp16 ep16 mbs1 vpp2 zero1 schedule=interleaved split=balanced recompute={kind}")
    assert not broken_laws(looped, one)
    memory = stage_memory(assign(one, looped)).peak_bytes
    [core] = score(one, table_of([looped])).peak_memory_bytes
    assert core == pytest.approx(np.max(memory), rel=1e-9)


def test_the_same_number_on_every_stage_is_one_strategy() -> None:
    one = parse_strategy("tp4 pp2 dp4 recompute=full:3,full:3")
    assert one == parse_strategy("tp4 pp2 dp4 recompute=full:3")
    assert str(one) == "tp4 pp2 dp4 mbs1 recompute=full:3"
    assert (one.recompute_layers, one.stage_recompute) == (3, None)


def test_modules_are_written_in_one_order() -> None:
    assert str(parse_strategy("recompute=mla_up_proj+core_attn+layernorm")).endswith(
        "recompute=core_attn+layernorm+mla_up_proj"
    )
    assert str(parse_strategy("recompute=core_attn")).endswith("recompute=selective")


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("tp4 pp4 dp4 recompute=moe_act", "names modules that llama3-70b does not have"),
        ("tp4 pp4 dp4 recompute=full:20", "have 20 layers at most and cannot recompute 20 of them; name 1 to 19"),
        ("tp4 pp4 dp4 recompute=selective:2", "only recompute=full can name a number of layers"),
    ],
)
def test_laws(text: str, law: str) -> None:
    assert any(law in message for message in broken_laws(parse_strategy(text), context("llama3-70b")))


def test_frameworks_without_modules_refuse_them() -> None:
    request = Request(model="llama3-8b", cluster="dgx-h100", global_batch=64, seq_len=4096, framework="torchtitan")
    (message,) = broken_laws(parse_strategy("dp8 zero3 recompute=layernorm"), resolve(request).context)
    assert "torchtitan has no recompute layernorm; it has none, selective, full" in message


def test_deepseek_v3_fits_where_it_was_trained() -> None:
    """2,048 H800 of 80 GB, DualPipe in fp8, norms, SwiGLU and up-projections recomputed (its report)."""
    request = Request(
        model="deepseek-v3", cluster="h800", global_batch=15360, seq_len=4096, precision="fp8", framework="hai-llm"
    )
    one = resolve(request).context
    text = f"tp1 pp16 dp128 ep64 mbs1 zero1 split=balanced schedule=dualpipe recompute={CHEAP}"
    without = resolve(dataclasses.replace(request, framework="generic", switches={"dispatcher": "deepep"})).context
    strategy = parse_strategy(text)
    assert not broken_laws(strategy, one)
    ours, plain = (score(context, table_of([strategy])) for context in (one, without))
    assert ours.fits[0] and not plain.fits[0]
    assert ours.step_time_s[0] < plain.step_time_s[0]
