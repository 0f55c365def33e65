"""Models of operators under strategy trees: every operator, exchange and bucket of a step as a task."""

from forerun.simulator.opgraph.events.buckets import Bucket, Buckets
from forerun.simulator.opgraph.events.compile import compile_layered
from forerun.simulator.opgraph.events.plan import LayeredPlan, layered_plan
from forerun.simulator.opgraph.events.simulate import simulate_plan

__all__ = ["Bucket", "Buckets", "LayeredPlan", "compile_layered", "layered_plan", "simulate_plan"]
