"""Pipeline schedules, one object and one file each, with the order of passes and its consequences."""

from forerun.spaces.schedules.catalogue import SCHEDULES, programs_of, register
from forerun.spaces.schedules.contract import Action, Keeping, Pass, PipelineSchedule, PipelineShape, Programs
from forerun.spaces.schedules.limited import limited
from forerun.spaces.schedules.orders_file import orders_text, read_orders
from forerun.spaces.schedules.stage_times import StageTimes

__all__ = [
    "SCHEDULES",
    "Action",
    "Keeping",
    "Pass",
    "PipelineSchedule",
    "PipelineShape",
    "Programs",
    "StageTimes",
    "limited",
    "orders_text",
    "programs_of",
    "read_orders",
    "register",
]
