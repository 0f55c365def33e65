"""All schedules by their number on the strategy axis. A new schedule is one file and one line in this module."""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.errors import unknown
from forerun.spaces.schedules.contract import IntArray, PipelineSchedule, PipelineShape, Programs
from forerun.spaces.schedules.dualpipe import DualPipe
from forerun.spaces.schedules.gpipe import GPipe
from forerun.spaces.schedules.interleaved import Interleaved
from forerun.spaces.schedules.one_f_one_b import OneFOneB
from forerun.spaces.schedules.stage_times import Floats
from forerun.spaces.schedules.zb_h1 import ZBH1
from forerun.spaces.schedules.zb_v import ZBV

Numbers: TypeAlias = "Floats | IntArray"
Values = TypeVar("Values", Floats, IntArray)

SCHEDULES: dict[int, PipelineSchedule] = {}
NAMES: dict[int, str] = {}
"""Name of each schedule in requests and reports."""


def register(schedule: PipelineSchedule) -> None:
    """Add a schedule to the catalogue for search, costs and launch files.

    Raises:
        ValueError: its number or name is taken.
    """
    if schedule.number in SCHEDULES or schedule.name in NAMES.values():
        raise ValueError(f"schedule {schedule.name} or its number {schedule.number} is there already")
    SCHEDULES[schedule.number], NAMES[schedule.number] = schedule, schedule.name


for _schedule in (OneFOneB(), Interleaved(), GPipe(), ZBH1(), ZBV(), DualPipe()):
    register(_schedule)


def schedule_of(number: int) -> PipelineSchedule:
    """Return the schedule with a number.

    Raises:
        RequestError: it does not exist.
    """
    if number not in SCHEDULES:
        raise unknown("schedule", str(number), NAMES.values())
    return SCHEDULES[number]


def programs_of(number: int, shape: PipelineShape) -> Programs:
    """Return the program of every pipeline rank, generated again for every reader.

    Raises:
        RequestError: the schedule does not exist, or has no order for this shape.
    """
    return schedule_of(number).programs(shape)


def virtual(number: int) -> bool:
    """Check whether a schedule has several virtual stages per rank, with layers assigned only by rule."""
    return schedule_of(number).fewest_virtual > 1


def with_trait(schedule: Numbers, trait: Callable[[PipelineSchedule], bool]) -> NDArray[np.bool_]:
    """Mark the numbers, of N, whose schedules have a trait."""
    mask = np.zeros(np.shape(schedule), dtype=bool)
    for number, one in SCHEDULES.items():
        if trait(one):
            mask |= schedule == number
    return mask


def rounds_of(schedule: Floats, vpp: Floats) -> Floats:
    """Return the virtual stages of a rank that run in turn; 1 for schedules with one virtual stage per rank."""
    return np.where(with_trait(schedule, lambda kind: kind.in_rounds), vpp, 1.0)


def streams_of(schedule: Floats) -> Floats:
    """Return the number of directions in which microbatches enter."""
    streams = np.ones(np.shape(schedule))
    for number, one in SCHEDULES.items():
        if one.streams > 1:
            streams[schedule == number] = one.streams
    return streams


def present(schedule: Numbers) -> list[PipelineSchedule]:
    """Return the schedules that are among some numbers."""
    return [one for number, one in SCHEDULES.items() if np.any(schedule == number)]


def by_schedule(schedule: Numbers, value: Callable[[PipelineSchedule], Values]) -> Values:
    """Return ``value`` for the schedule of each of S numbers; ``value`` has S on its last axis."""
    first, *others = present(schedule) or [*SCHEDULES.values()][:1]
    values: Values = value(first)
    for one in others:
        values = np.where(schedule == one.number, value(one), values)
    return values
