"""A schedule that this file alone defines is searched, costed by both levels, written and read."""

import dataclasses
from collections.abc import Iterator
from types import MappingProxyType

import numpy as np
import pytest

from forerun.search import Request, search_request
from forerun.search.answer.refine import refine
from forerun.search.api import simulate_setting
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.simulator.stages.plan import in_flight
from forerun.spaces.schedules import (
    SCHEDULES,
    Action,
    Keeping,
    Pass,
    PipelineSchedule,
    PipelineShape,
    Programs,
    StageTimes,
    register,
)
from forerun.spaces.schedules.catalogue import NAMES
from forerun.spaces.schedules.stage_times import Floats, total_over_stages
from forerun.spaces.strategies import Schedule, parse_strategy
from forerun.spaces.strategies.axes import schedules_in
from forerun.spaces.strategies.stage_laws import broken_laws


class Serial(PipelineSchedule):
    """One microbatch at a time: through all stages and back before the next one starts."""

    number = 9
    name = "serial"
    spelling = MappingProxyType({"torch": "Serial"})
    microbatch_law = "an even number"

    def programs(self, shape: PipelineShape) -> Programs:
        turns = [
            (kind, microbatch) for microbatch in range(shape.microbatches) for kind in (Pass.FORWARD, Pass.BACKWARD)
        ]
        return [[Action(kind, microbatch, rank) for kind, microbatch in turns] for rank in range(shape.pp)]

    def bubble_s(self, stages: StageTimes, pp: Floats, vpp: Floats, microbatches: Floats) -> Floats:
        both = stages.forward_s + stages.backward_s
        return np.asarray(microbatches * (total_over_stages(stages.multiplicity, both) - both))

    def in_flight(
        self, stage: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, uneven: Floats | float, memory: Keeping
    ) -> Floats:
        return np.ones_like(pp)

    def exposed_p2p(self, pp: Floats, vpp: Floats, microbatches: Floats, *, overlap: bool) -> Floats:
        return 2 * (pp - 1) * microbatches

    def unpaired_share(self, pp: Floats, microbatches: Floats) -> Floats:
        return np.ones_like(pp)

    def illegal_microbatches(self, pp: np.ndarray, microbatches: np.ndarray) -> np.ndarray:
        return np.asarray(microbatches % 2 != 0)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register(Serial())
    yield
    del SCHEDULES[Serial.number], NAMES[Serial.number]


def _setting(*schedules: str) -> Setting:
    own = {"schedule": list(schedules), "pp": [4], "vpp": [1], "tp": [1]}
    request = Request(
        model="llama3-8b",
        cluster="dgx-h100",
        gpus="8",
        global_batch=32,
        seq_len=4096,
        framework="generic",
        overrides=own,
    )
    setting = resolve(request)
    framework = setting.context.framework
    legality = dataclasses.replace(framework.legality, schedules=(*framework.legality.schedules, Serial.name))
    context = dataclasses.replace(setting.context, framework=dataclasses.replace(framework, legality=legality))
    return dataclasses.replace(setting, context=context)


@pytest.mark.slow
def test_it_is_searched_and_both_levels_agree() -> None:
    board = search_request(_setting("serial"))
    events = refine(board, _setting("serial"), 5)
    closed = {row.name: row.step_time_s for row in board.rows}

    assert len(events.rows) == 5
    for row in events.rows:
        assert "schedule=serial" in row.name
        assert row.step_time_s == pytest.approx(closed[row.name], rel=0.02)


def test_it_is_slower_than_1f1b_and_keeps_one_microbatch() -> None:
    setting = _setting("serial", "1f1b")
    usual, serial = (
        simulate_setting(setting, f"tp1 pp4 dp2 mbs1 zero1 recompute=full{schedule}")
        for schedule in ("", " schedule=serial")
    )

    assert search_request(setting).rows[0].strategy.schedule == Schedule.ONE_F_ONE_B
    assert serial.step_time_s > 2 * usual.step_time_s
    one = np.ones(2)
    kept = in_flight(np.array([0.0, 9.0]), 0 * one, 4 * one, one, 16 * one)
    assert [*kept] == [4.0, 1.0]


def test_its_name_is_read_written_and_spelled() -> None:
    strategy = parse_strategy("tp1 pp4 dp2 mbs1 schedule=serial")

    assert strategy.schedule == Serial.number
    assert str(strategy) == "tp1 pp4 dp2 mbs1 schedule=serial"
    assert schedules_in("torch")[strategy.schedule] == "Serial"


def test_its_laws_are_kept() -> None:
    even, odd = (parse_strategy(f"tp1 pp4 dp2 mbs{mbs} schedule=serial") for mbs in (1, 16))
    context = _setting("serial").context

    assert broken_laws(even, context) == []
    assert any(
        "1 microbatches do not fill" in law and "serial an even number" in law for law in broken_laws(odd, context)
    )
