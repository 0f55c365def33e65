"""All schedules by their number on the strategy axis."""

from collections.abc import Mapping
from types import MappingProxyType

from forerun.simulator.schedules.contract import PipelineShape, Programs, ScheduleOrder
from forerun.simulator.schedules.dualpipe import dualpipe
from forerun.simulator.schedules.gpipe import gpipe
from forerun.simulator.schedules.interleaved import interleaved
from forerun.simulator.schedules.one_f_one_b import one_f_one_b
from forerun.simulator.schedules.zb_h1 import zb_h1
from forerun.simulator.schedules.zb_v import zb_v
from forerun.spaces.errors import unknown
from forerun.spaces.strategies import SPELLING, Schedule

SCHEDULES: Mapping[int, ScheduleOrder] = MappingProxyType(
    {
        Schedule.ONE_F_ONE_B: one_f_one_b,
        Schedule.INTERLEAVED: interleaved,
        Schedule.GPIPE: gpipe,
        Schedule.ZB_H1: zb_h1,
        Schedule.ZB_V: zb_v,
        Schedule.DUALPIPE: dualpipe,
    }
)
"""A new schedule is one file, one line here and one on the axis."""


def programs_of(schedule: int, shape: PipelineShape) -> Programs:
    """Return what every pipeline rank runs, as programs that are written each time that they are gone through.

    Raises:
        RequestError: no such schedule, or it has no order for this shape.
    """
    if schedule not in SCHEDULES:
        raise unknown("schedule", str(schedule), SPELLING["schedule"].values())
    return SCHEDULES[schedule](shape)
