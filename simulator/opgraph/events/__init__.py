"""Event level of operator graphs under strategy trees: every operator, exchange and bucket of a step is a task."""

from forerun.simulator.opgraph.events.buckets import Buckets
from forerun.simulator.opgraph.events.graph_step import simulate_plan
from forerun.simulator.opgraph.events.plan import GraphPlan
from forerun.simulator.opgraph.events.planning import graph_plan

__all__ = ["Buckets", "GraphPlan", "graph_plan", "simulate_plan"]
