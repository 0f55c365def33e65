"""Event level of operator graphs under strategy trees: every operator, exchange and bucket of a step is a task."""

from forerun.simulator.opgraph.events.buckets import Bucket, Buckets
from forerun.simulator.opgraph.events.compile import compile_graph
from forerun.simulator.opgraph.events.graph_step import simulate_plan
from forerun.simulator.opgraph.events.plan import GraphPlan
from forerun.simulator.opgraph.events.planning import graph_plan

__all__ = ["Bucket", "Buckets", "GraphPlan", "compile_graph", "graph_plan", "simulate_plan"]
