"""Pipeline schedules: the order in which every pipeline rank runs its passes, one file per schedule."""

from forerun.simulator.schedules.catalogue import SCHEDULES, programs_of
from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Programs, ScheduleOrder
from forerun.simulator.schedules.limited import limited
from forerun.simulator.schedules.orders_file import orders_text, read_orders

__all__ = [
    "SCHEDULES",
    "Action",
    "Pass",
    "PipelineShape",
    "Programs",
    "ScheduleOrder",
    "limited",
    "orders_text",
    "programs_of",
    "read_orders",
]
