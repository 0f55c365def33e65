"""The second level of fidelity: one step of training, event by event."""

from forerun.simulator.assignment.costs import ChunkCost, StageCost, StepCosts
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.events.engine.engine import execute
from forerun.simulator.events.engine.graph import TaskGraph
from forerun.simulator.events.engine.kinds import KINDS, STREAMS
from forerun.simulator.events.engine.svg import timeline_svg
from forerun.simulator.events.export.chakra import write_chakra
from forerun.simulator.events.export.gantt import timeline_text
from forerun.simulator.events.export.page import timeline_html
from forerun.simulator.events.export.summary import event_summary
from forerun.simulator.events.export.trace import trace_events, write_trace
from forerun.simulator.events.step.compile import compile_step
from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.events.step.rescore import event_scores, result_scores
from forerun.simulator.events.step.result import EventResult
from forerun.simulator.events.step.strategy_step import simulate, simulate_costs

__all__ = [
    "KINDS",
    "STREAMS",
    "ChunkCost",
    "Disturbance",
    "EventResult",
    "StageCost",
    "StepCosts",
    "TaskGraph",
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
