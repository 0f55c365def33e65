"""Words for stages that differ: they round-trip, and name the law where they cannot be."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import legal_strategy
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute, StageOffload, StageRecompute, Strategy, parse_strategy, table_of
from forerun.spaces.strategies.stage_choices import tidy

entries = st.tuples(
    st.sampled_from([Recompute(kind) for kind in (0, 1, 2, 4, 12)]), st.sampled_from([None, 1, 3, 12])
).map(lambda pair: StageRecompute(*pair))

shares = st.tuples(st.sampled_from([0.0, 0.125, 0.5, 1.0]), st.sampled_from([0.0, 0.375, 0.3333, 1.0])).map(
    lambda pair: StageOffload(*pair)
)


@given(
    recompute=st.none() | st.lists(entries, min_size=4, max_size=4).map(tuple),
    tp=st.sampled_from([(1, None), (2, 4), (4, 2), (2, 1), (3, 6)]),
    layers=st.sampled_from([None, (7, 9, 8, 8)]),
    zero=st.integers(0, 3),
    offload=st.none() | st.lists(shares, min_size=4, max_size=4).map(tuple),
)
def test_strings_and_tables_round_trip(
    recompute: tuple[StageRecompute, ...] | None,
    tp: tuple[int, int | None],
    layers: tuple[int, ...] | None,
    zero: int,
    offload: tuple[StageOffload, ...] | None,
) -> None:
    first, second = tp
    strategy = Strategy(
        tp=first,
        second_tp=second,
        pp=4,
        dp=12,
        mbs=6,
        zero=zero,
        stage_recompute=recompute,
        layers_per_stage=layers,
        stage_offload=offload,
    )
    whole = recompute is not None and len(set(recompute)) == 1 and recompute[0].layers is None
    named = parse_strategy(str(strategy))

    assert parse_strategy(str(named)) == named
    assert table_of([strategy]).strategy(0) == strategy
    if whole and recompute is not None:
        assert named.recompute == recompute[0].kind and named.stage_recompute is None
    else:
        assert named == strategy


def test_words_mean_what_they_say() -> None:
    strategy = parse_strategy("tp2/4 pp4 dp8/4 mbs1/2 layers=9,9,7,7 recompute=full:3*2,selective,none zero1 sp")

    assert str(strategy.half(False)).startswith("tp2 pp4 dp8 mbs1 zero1 sp")
    assert str(strategy.half(True)).startswith("tp4 pp4 dp4 mbs2 zero1 sp")
    assert [str(entry) for entry in strategy.stage_recompute or ()] == ["full:3", "full:3", "selective", "none"]
    assert strategy.devices == strategy.half(True).devices == 64
    assert parse_strategy("tp2,pp2,recompute=full,none,zero1").zero == 1
    assert parse_strategy("tp4/4 pp2") == parse_strategy("tp4 pp2")


def test_one_way_to_say_it() -> None:
    full, none = Recompute.FULL, Recompute.NONE
    said = (StageRecompute(full, 8), StageRecompute(full, 0), StageRecompute(none, 3), StageRecompute(full, 3))

    assert [str(entry) for entry in tidy(said, (8, 8, 8, 8))] == ["full", "none", "none", "full:3"]


@pytest.mark.parametrize(
    "text,law",
    [
        ("tp4/2 pp2 dp2 mbs1", "mbs=1 makes no whole number; use a multiple of 2"),
        ("tp2/4 pp2 dp8/8 mbs1", "the second half has dp=4 .* but the strategy says dp=8"),
        ("tp2/4 dp8", "needs degrees of at least 1 and pp >= 2, but got pp=1"),
        ("tp2/8 pp2 dp2", "dp\\*tp = 4 devices of a stage are not divisible by tp=8"),
        ("tp4 pp4 recompute=full,none", "must name 4 stages"),
        ("tp4 pp2 recompute=full:x,none", "cannot read 'none'|unknown recompute|cannot read"),
        ("tp4 pp2 recompute=full recompute=full,none", "is given twice"),
        ("pp99999999999 recompute=full:3", "at most 9 digits, but got pp99999999999"),
        ("pp4 recompute=full*99999999999", "at most 9 digits"),
        ("pp4 activation-offload=1.5", "cannot read '1.5' in activation-offload=1.5; write shares from 0 to 1"),
        ("pp4 activation-offload=", "cannot read '' in activation-offload="),
        ("pp4 optimizer-offload=0.5,1", "must name 4 stages"),
        ("pp4 optimizer-offload=0.5*99999", "must name 4 stages .* names more"),
        ("pp2 optimizer-offload=0.5,1 optimizer-offload=1", "is given twice"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, law: str) -> None:
    with pytest.raises(RequestError, match=law):
        parse_strategy(text)


@pytest.mark.parametrize(
    "text,law",
    [
        ("tp2 pp4 dp2 mbs1 vpp2 schedule=interleaved recompute=full,none*3", "one whole stage on every device"),
        ("tp2 pp4 dp2 mbs1 recompute=full:8,none*3", "stage 0 has 8 layers and cannot recompute full:8; name 1 to 7"),
        ("tp2 pp4 dp2 mbs1 recompute=selective:2", "only recompute=full can name a number of layers"),
        ("tp4/3 pp4 dp3/4 mbs4/3", "second half: 32 heads are not divisible by tp=3"),
        ("tp2/16 pp2 dp8/1 mbs1/8 zero3", "does not offer zero=3 with pp=2"),
    ],
)
def test_laws_of_stages(text: str, law: str) -> None:
    setting = resolve(Request(model="llama3-8b", cluster="dgx-h100", global_batch=48, seq_len=4096))
    with pytest.raises(RequestError, match=law):
        legal_strategy(setting, text)


@pytest.mark.parametrize(
    "request_fields,text,law",
    [
        ({"framework": "torchtitan"}, "pp2 dp4 zero2 activation-offload=0.5,0", "no switch activation-offload"),
        ({"switches": {"optimizer": "muon"}}, "pp2 dp4 optimizer-offload=1,0", "updates Adam alone, and muon runs"),
        ({}, "tp2 pp4 vpp2 schedule=interleaved optimizer-offload=1,0*3", "one whole stage on every device"),
    ],
)
def test_shares_on_the_host_need_software_that_moves_them(request_fields: dict[str, Any], text: str, law: str) -> None:
    known = {"model": "llama3-8b", "cluster": "dgx-h100", "global_batch": 48, "seq_len": 4096}
    with pytest.raises(RequestError, match=law):
        legal_strategy(resolve(Request(**{**known, **request_fields})), text)


def test_a_share_for_all_stages_is_written_once() -> None:
    strategy = parse_strategy("pp3 activation-offload=0.25 optimizer-offload=0,1*2")

    assert str(strategy) == "tp1 pp3 dp1 mbs1 optimizer-offload=0,1*2 activation-offload=0.25"
    assert strategy.stage_offload == (StageOffload(0, 0.25), *(StageOffload(1, 0.25),) * 2)


def test_a_number_of_layers_needs_a_framework_that_has_it() -> None:
    setting = resolve(
        Request(model="llama3-8b", cluster="dgx-h100", global_batch=48, seq_len=4096, framework="torchtitan")
    )
    with pytest.raises(RequestError, match="torchtitan recomputes all layers of a stage or none"):
        legal_strategy(setting, "tp2 pp4 dp2 mbs1 zero2 sp recompute=full:3")
