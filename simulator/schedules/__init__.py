"""Pipeline schedules: the order in which every pipeline rank runs its passes, one file per schedule."""

from forerun.simulator.schedules.catalogue import SCHEDULES, programs_of
from forerun.simulator.schedules.contract import Action, Pass, PipelineShape, Programs, ScheduleOrder
from forerun.simulator.schedules.limited import limited

__all__ = ["SCHEDULES", "Action", "Pass", "PipelineShape", "Programs", "ScheduleOrder", "limited", "programs_of"]
