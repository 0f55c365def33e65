"""Every neighbour is legal, differs, keeps the device count, and is found by its difference in words."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from forerun.search.answer.explain.explain import explain_strategy
from forerun.search.answer.explain.neighbours import difference, neighbours
from forerun.search.answer.explain.why import why
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.faster import lower_because, order_note
from forerun.search.board.rows import rows_of
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, legal_strategy
from forerun.spaces.strategies import Software, parse_strategy
from forerun.spaces.strategies.space import strategies_at, values_at
from forerun.spaces.strategies.stage_laws import broken_laws
from forerun.spaces.strategies.table import axis_values


@pytest.mark.parametrize(
    "model,text",
    [
        ("llama3-8b", "tp2 pp2 dp4 mbs1 zero1 sp"),
        ("llama3-8b", "tp1 pp4 dp4 mbs2 vpp2 schedule=interleaved"),
        ("llama3-8b", "dp16"),
        ("llama3-8b", "pp3 dp1 mbs1 layers=10,11,11"),
        ("mixtral-8x7b", "tp2 dp8 ep4 sp zero1"),
        ("llama3-8b", "tp2 pp4 dp2 mbs1 zero1 recompute=full,full:2,none*2"),
        ("llama3-8b", "tp1/2 pp4 dp4 mbs1/2 zero1 layers=7,8,9,8"),
    ],
)
@pytest.mark.slow
def test_neighbours_are_legal_and_different(make_setting: Callable[..., Setting], model: str, text: str) -> None:
    setting = make_setting(model=model, gpus=None)
    strategy = legal_strategy(setting, text)
    found = neighbours(setting.context, strategy)

    assert found
    assert len({str(change.strategy) for change in found}) == len(found)
    for change in found:
        values = axis_values(change.strategy)
        assert change.strategy != strategy
        assert change.strategy.devices == strategy.devices
        if strategy.layers_per_stage is None and strategy.stage_choices is None:
            assert values[change.axis] != axis_values(strategy)[change.axis]
        assert broken_laws(change.strategy, setting.context) == []
        assert change.words == difference(strategy, change.strategy)


def test_what_stages_hold_stays_and_is_changed_stage_by_stage(make_setting: Callable[..., Setting]) -> None:
    setting = make_setting(gpus=None)
    strategy = legal_strategy(setting, "tp1/2 pp4 dp4 mbs1/2 zero1 layers=7,8,9,8 recompute=full,none*3")
    found = {change.words: change.strategy for change in neighbours(setting.context, strategy)}

    assert {"-zero1", "layers=7,8,9,8 -> layers=8,7,9,8", "recompute=full,none*3 -> recompute=full:6,none*3"} <= set(
        found
    )
    assert found["-zero1"].layers_per_stage == strategy.layers_per_stage
    assert found["-zero1"].stage_recompute == strategy.stage_recompute and found["-zero1"].second_tp == 2
    assert any(words.startswith("tp1/2 -> tp1/4") for words in found)
    assert any(words.startswith("tp1/2 -> tp1,") for words in found)
    assert "recompute=full,none*3 -> recompute=full" in found


def test_shares_on_the_host_stay_and_are_changed_stage_by_stage(make_setting: Callable[..., Setting]) -> None:
    setting = make_setting(gpus=None)
    strategy = legal_strategy(setting, "tp2 pp2 dp4 mbs1 zero1 activation-offload=0.5,0")
    found = {change.words: change.strategy for change in neighbours(setting.context, strategy)}

    assert found["-zero1"].stage_offload == strategy.stage_offload
    assert {"activation-offload=0.5,0 -> activation-offload=0.375,0", "+optimizer-offload=0,0.125"} <= set(found)
    assert found["mbs1 -> mbs2"].stage_offload == strategy.stage_offload


def test_neighbours_reach_every_axis_that_has_a_choice(make_setting: Callable[..., Setting]) -> None:
    setting = make_setting(gpus=None)
    axes = {change.axis for change in neighbours(setting.context, parse_strategy("tp2 pp2 dp4 mbs2 zero1 sp"))}

    assert axes >= {"tp", "pp", "cp", "vpp", "mbs", "zero", "sp", "recompute", "placement"}


def test_a_number_moves_to_its_nearest_legal_choice(make_setting: Callable[..., Setting]) -> None:
    setting = make_setting(gpus=None)
    changes = neighbours(setting.context, parse_strategy("tp2 pp1 dp8 mbs2"))

    assert {change.strategy.tp for change in changes if change.axis == "tp"} == {1, 4}
    assert {change.strategy.mbs for change in changes if change.axis == "mbs"} == {1, 4}


def test_indices_and_strategies_agree(make_setting: Callable[..., Setting]) -> None:
    space = make_setting().space()
    table, _ = space.table(0, space.size)
    rows = range(0, len(table), 370)

    assert strategies_at(space, table.index[rows]) == tuple(table.strategy(row) for row in rows)
    for row in rows:
        expected = {axis: int(table.column(axis)[row]) for axis in table.choices}
        assert values_at(space, int(table.index[row])) == expected


def test_explanation_orders_changes(make_setting: Callable[..., Setting]) -> None:
    setting = make_setting(gpus=None)
    explanation = explain_strategy(setting.context, legal_strategy(setting, "tp4 pp2 dp2 mbs1 recompute=full"))

    helping, hurting = explanation.helping(), explanation.hurting()
    assert [c.added_s for c in explanation.changes] == sorted(c.added_s for c in explanation.changes)
    assert helping and all(c.added_s < 0 and c.row.fits for c in helping)
    assert hurting and all(c.added_s > 0 for c in hurting)
    for change in explanation.changes:
        assert change.added_s == pytest.approx(change.row.step_time_s - explanation.row.step_time_s)
    assert all(c.row.peak_memory_gib < explanation.row.peak_memory_gib for c in explanation.saving_memory())


def test_a_row_that_does_not_fit_is_helped_by_what_needs_no_more_memory(make_setting: Callable[..., Setting]) -> None:
    setting = make_setting(gpus=None)
    explanation = explain_strategy(setting.context, legal_strategy(setting, "tp8 pp1 dp2 mbs32 sp"))

    helping = explanation.helping()
    assert not explanation.row.fits and "+with=tp-comm-overlap" in [change.words for change in helping]
    assert all(c.row.fits or c.row.peak_memory_gib <= explanation.row.peak_memory_gib for c in helping)


def test_why_names_what_bounds_and_what_the_runner_up_loses(make_setting: Callable[..., Setting]) -> None:
    setting = make_setting(gpus=None)
    texts = ("tp1 pp1 dp16 mbs1 zero1", "tp1 pp1 dp16 mbs1 zero1 recompute=full")
    first, second = rows_of(setting.context, [legal_strategy(setting, text) for text in texts])
    text = why([first, second])

    largest = max(first.breakdown_s, key=first.breakdown_s.__getitem__)
    assert text.startswith(f"{first.strategy}: step ") and f"({largest} " in text
    slower = second.step_time_s / first.step_time_s - 1
    assert f"The runner-up {second.strategy} is {slower:.1%} slower: " in text
    assert "recompute +" in text
    assert why([]) == ""

    back = why([second, first], lower_because(setting.context, second, first))
    reason = f"ranked lower because of {first.oom_risk:.0%} OOM risk"
    assert " faster: " in back and f"; {reason}" in back
    assert lower_because(setting.context, first, second) == ""


def test_rows_below_slower_ones_are_named_with_the_weightiest_reason() -> None:
    """Four rows: the third is faster than the second and splits short sequences, the fourth is slower."""
    setting = resolve(Request(model="llama3-8b", cluster="dgx-h100", gpus="16", global_batch=64, seq_len=4096))
    texts = ("tp2 dp8 mbs1 sp", "tp4 dp4 mbs1 sp", "tp2 dp4 cp2 mbs1 sp", "tp8 dp2 mbs1 sp")
    made = rows_of(setting.context, [legal_strategy(setting, text) for text in texts])
    rows = [
        replace(row, rank=rank, oom_risk=0.0, step_time_s=step_s)
        for rank, row, step_s in zip((1, 2, 3, 4), made, (1.0, 1.2, 1.1, 1.3), strict=True)
    ]

    note = "faster rows ranked lower: 3 (cp below 8,192 tokens per rank)"
    assert order_note(setting, rows, NoteSearch()) == (note,)
    risky = [*rows[:3], replace(rows[3], step_time_s=1.15, oom_risk=0.4)]
    assert order_note(setting, risky, NoteSearch()) == (f"{note}, 4 (40% OOM risk)",)
    assert order_note(setting, [rows[0], rows[1], rows[3]], NoteSearch()) == ()
    assert order_note(replace(setting, objective="headroom"), rows, NoteSearch()) == ()


def test_what_weighs_little_is_no_reason_beside_what_weighs_more() -> None:
    setting = resolve(Request(model="llama3-8b", cluster="dgx-h100", gpus="16", global_batch=64, seq_len=4096))
    texts = ("tp2 dp8 mbs1 sp", "tp1 pp2 dp8 mbs1 recompute=full")
    made = rows_of(setting.context, [legal_strategy(setting, text) for text in texts])
    first, second = replace(made[0], oom_risk=0.0), replace(made[1], oom_risk=0.01)
    faster = replace(second, step_time_s=0.9 * first.step_time_s)
    assert lower_because(setting.context, first, faster) == "; ranked lower because of more pipeline stages"
    assert (
        lower_because(setting.context, first, replace(faster, oom_risk=0.2)) == "; ranked lower because of 20% OOM risk"
    )


def test_a_row_that_another_beats_in_speed_and_risk_is_lower_because_of_it() -> None:
    setting = resolve(Request(model="llama3-8b", cluster="dgx-h100", gpus="16", global_batch=64, seq_len=4096))
    texts = ("tp2 dp8 mbs1 sp", "tp1 dp16 mbs1 zero1", "tp2 dp4 cp2 mbs1 sp")
    made = rows_of(setting.context, [legal_strategy(setting, text) for text in texts])
    times, risks = (1.0, 0.96, 0.95), (0.0, 0.03, 0.0)
    rows = [replace(row, step_time_s=s, oom_risk=risk) for row, s, risk in zip(made, times, risks, strict=True)]

    reason = f"; ranked lower because {rows[2].name} is both faster and safer"
    assert lower_because(setting.context, *rows[:2], rows) == reason
    assert "both" not in lower_because(setting.context, *rows[:2], rows[:2])
    risky = [rows[0], replace(rows[1], oom_risk=0.4), rows[2]]
    assert lower_because(setting.context, *risky[:2], risky) == "; ranked lower because of 40% OOM risk"


def test_a_switch_that_a_search_turns_on_is_a_step() -> None:
    context = resolve(Request(model="llama3-70b", cluster="dgx-h100", global_batch=1024, seq_len=8192)).context
    plain = parse_strategy("tp4 pp4 dp32 mbs1 zero1 sp")
    on = replace(plain, software=Software.TP_COMM_OVERLAP)

    assert on in {step.strategy for step in neighbours(context, plain)}
    assert plain in {step.strategy for step in neighbours(context, on)}
    best = explain_strategy(context, plain).helping(1)[0]
    assert best.words == "+with=tp-comm-overlap" and best.added_s < 0
