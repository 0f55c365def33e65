"""The second level of fidelity: one step of training, event by event."""

from forerun.simulator.events.chakra import write_chakra
from forerun.simulator.events.compile import compile_step
from forerun.simulator.events.costs import ChunkCost, StageCost, StepCosts, step_costs
from forerun.simulator.events.disturb import Disturbance
from forerun.simulator.events.engine import Execution, execute
from forerun.simulator.events.gantt import timeline_text
from forerun.simulator.events.graph import TaskGraph
from forerun.simulator.events.kinds import KINDS, STREAMS
from forerun.simulator.events.memory import MemoryCurve
from forerun.simulator.events.page import timeline_html
from forerun.simulator.events.rescore import event_scores, result_scores
from forerun.simulator.events.result import EventResult, StageUse, TimelineTask
from forerun.simulator.events.simulate import simulate, simulate_costs
from forerun.simulator.events.summary import event_summary
from forerun.simulator.events.svg import timeline_svg
from forerun.simulator.events.trace import trace_events, write_trace

__all__ = [
    "KINDS",
    "STREAMS",
    "ChunkCost",
    "Disturbance",
    "EventResult",
    "Execution",
    "MemoryCurve",
    "StageCost",
    "StageUse",
    "StepCosts",
    "TaskGraph",
    "TimelineTask",
    "compile_step",
    "event_scores",
    "event_summary",
    "execute",
    "result_scores",
    "simulate",
    "simulate_costs",
    "step_costs",
    "timeline_html",
    "timeline_svg",
    "timeline_text",
    "trace_events",
    "write_chakra",
    "write_trace",
]
