"""Switches that belong to a strategy: their words, where they are turned on, and what they change."""

from dataclasses import replace

import numpy as np
import pytest
from laws import slacks

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import load_framework
from forerun.spaces.strategies import Software, StrategySpace, parse_strategy, table_of
from forerun.spaces.strategies.axes import CHOSEN
from forerun.spaces.strategies.software import can_turn_on, choices_of_software, names_of, running, settled
from forerun.spaces.strategies.stage_laws import broken_laws

QWEN = Request(model="qwen3-30b-a3b", cluster="dgx-h100", gpus="32", global_batch=256, seq_len=4096)
BOTH = Software.TP_COMM_OVERLAP | Software.MOE_OVERLAP


def space(request: Request = QWEN) -> StrategySpace:
    return resolve(request).space()


@pytest.mark.parametrize(
    "framework, names",
    [
        ("megatron-lm", ["tp-comm-overlap", "moe-overlap"]),
        ("nemo", ["moe-overlap"]),
        ("nemo-blackwell", []),
        ("torchtitan", ["tp-comm-overlap", "dispatcher=deepep"]),
        ("deepspeed", []),
        ("generic", []),
    ],
)
def test_what_frameworks_can_turn_on(framework: str, names: list[str]) -> None:
    assert names_of(can_turn_on(load_framework(framework))) == names


def test_words_round_trip() -> None:
    text = "tp2 pp2 dp8 ep8 mbs1 vpp2 zero1 sp schedule=interleaved with=tp-comm-overlap+moe-overlap"
    strategy = parse_strategy(text)
    assert strategy.software == BOTH
    assert str(strategy) == text
    assert str(table_of([strategy]).strategy(0)) == text
    assert parse_strategy("tp2 with=moe-overlap+tp-comm-overlap sp").software == BOTH


@pytest.mark.parametrize("text", ["with=", "with=overlap", "with=moe-overlap,tp-comm-overlap", "with=moe-overlap+"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(RequestError):
        parse_strategy(f"tp2 dp8 {text}")


@pytest.mark.parametrize(
    "text, law",
    [
        ("tp1 dp32 ep8 mbs1 with=tp-comm-overlap", "needs sp, and a tp within one scale-up domain"),
        ("tp16 dp2 mbs1 sp with=tp-comm-overlap", "needs sp, and a tp within one scale-up domain"),
        ("tp1 pp2 dp16 ep8 mbs1 with=moe-overlap", "vpp > 1 where pp > 1"),
        ("tp1 dp32 ep8 mbs1 recompute=full with=moe-overlap", "neither full recompute"),
        ("tp1 dp32 mbs1 with=moe-overlap", "needs ep > 1"),
        ("tp1 dp32 ep8 mbs1 with=dispatcher=deepep", "megatron-lm cannot turn dispatcher=deepep on, or has it on"),
    ],
)
def test_laws(text: str, law: str) -> None:
    (message,) = broken_laws(parse_strategy(text), resolve(QWEN).context)
    assert law in message and message.endswith("drop it")


@pytest.mark.parametrize("cluster", ["dgx1-v100", "a100-pcie"])
def test_user_buffers_need_nvlink_and_ampere(cluster: str) -> None:
    """No row is faster by an overlap that its devices cannot run."""
    setting = resolve(replace(QWEN, model="llama3-8b", cluster=cluster, precision="fp16"))
    table, _ = setting.space({"tp": [2, 4]}).table(0, 1 << 16)
    assert len(table) and not table.column("software").any()


def test_a_space_turns_on_what_does_something_and_nothing_else() -> None:
    """Each candidate comes once: with every switch that costs nothing, with and without each that costs memory."""
    few = {"tp": [1, 2], "cp": [1], "pp": [1, 2], "mbs": [1, 2], "recompute": ["none", "full"], "zero": [1]}
    own = resolve(QWEN).space(few)
    table, _ = own.table(0, own.size)
    assert len(table) > 100
    every = {table.strategy(row) for row in range(len(table))}
    assert len(every) == len(table)
    rows = np.random.default_rng(0).choice(len(table), 60, replace=False)
    for strategy in (table.strategy(row) for row in rows):
        assert not broken_laws(strategy, own.context)
        for flag in Software:
            if flag and not strategy.software & flag:
                more = replace(strategy, software=strategy.software | flag)
                assert (flag & CHOSEN and more in every) or broken_laws(more, own.context), f"{strategy}: {flag}"
        assert replace(strategy, software=strategy.software & ~CHOSEN) in every
        assert settled(own.context, replace(strategy, software=strategy.switches)) == strategy


def test_what_a_user_sets_is_not_searched() -> None:
    pinned = space(replace(QWEN, switches={"tp-comm-overlap": "off"}))
    assert choices_of_software(pinned.context).tolist() == [0, int(Software.MOE_OVERLAP)]
    assert not space(replace(QWEN, switches={"tp-comm-overlap": "on", "moe-overlap": "off"})).context.free_software


@pytest.mark.slow
def test_none_slows_a_step() -> None:
    own = space()
    table, _ = own.table(0, own.size)
    strategies = [table.strategy(row) for row in np.random.default_rng(1).choice(len(table), 200, replace=False)]
    plain = table_of([replace(strategy, software=Software.NONE) for strategy in strategies])
    fast, slow = score(own.context, table_of(strategies)), score(own.context, plain)
    assert (fast.step_time_s <= slow.step_time_s * (1 + slacks(own.context, plain) + 1e-9)).all()
    ahead = np.array([bool(strategy.software & Software.MOE_OVERLAP) for strategy in strategies])
    assert (fast.peak_memory_bytes[~ahead] == slow.peak_memory_bytes[~ahead]).all()
    assert (fast.peak_memory_bytes[ahead] >= slow.peak_memory_bytes[ahead]).all()
    assert (fast.step_time_s < slow.step_time_s * 0.99).any()


def test_a_strategy_with_a_switch_costs_what_the_switched_software_costs() -> None:
    context = resolve(QWEN).context
    # Microbatches of one would wait for the host, whatever hides.
    strategy = parse_strategy("tp1 pp2 dp16 ep8 mbs2 vpp2 zero1 schedule=interleaved with=moe-overlap")
    other = replace(strategy, software=Software.NONE)
    together = score(context, table_of([other, strategy, other]))
    alone = score(running(context, Software.MOE_OVERLAP), table_of([other]))
    assert together.step_time_s[1] == alone.step_time_s[0] < together.step_time_s[0]
    assert together.step_time_s[0] == together.step_time_s[2]


def test_a_prediction_block_needs_a_pipeline_for_the_combined_schedule() -> None:
    """Megatron-core 0.16.1 refuses the other (read by its TransformerConfig, ten rows of DeepSeek-V3)."""
    context = resolve(replace(QWEN, model="deepseek-v3", gpus="128", framework="nemo")).context
    free = replace(context, free_software=Software.MOE_OVERLAP)
    alone, looped = (
        settled(free, replace(parse_strategy(text), software=Software.MOE_OVERLAP)).software
        for text in ("tp2 dp64 ep64 mbs1 zero1 sp", "tp2 pp2 dp32 ep32 mbs1 vpp2 zero1 sp schedule=interleaved")
    )
    assert (alone, looped) == (Software.NONE, Software.MOE_OVERLAP)


@pytest.mark.slow
def test_what_costs_memory_is_a_choice_where_it_does_something() -> None:
    """Of mixtures whose microbatches can be combined; other spaces have no candidate more."""
    both, dense = space(), space(replace(QWEN, model="llama3-8b"))
    assert both.choices["switches"] == (0, int(Software.MOE_OVERLAP))
    assert dense.choices["switches"] == (0,)
    table, _ = both.table(0, both.size)
    on = table.column("switches") != 0
    microbatches = 256 // (table.column("dp") * table.column("mbs"))
    assert on.any() and (microbatches > table.column("pp"))[on].all()
    rows = np.flatnonzero(on)[:: max(1, np.count_nonzero(on) // 500)]
    pairs = [table.strategy(row) for row in rows]
    plain = table_of([replace(s, software=s.software & ~CHOSEN) for s in pairs])
    ahead, without = (score(both.context, one) for one in (table_of(pairs), plain))
    assert (ahead.peak_memory_bytes > without.peak_memory_bytes).mean() > 0.99
    assert (ahead.step_time_s <= without.step_time_s * (1 + slacks(both.context, plain) + 1e-9)).all()
    assert (without.fits & ~ahead.fits).any()  # candidates that the switch would take away
