"""Improvements of a training, from traces or from a model: requests and plan files."""

from forerun.search.improve.fused_costs import with_fused_costs
from forerun.search.improve.plan_file import write_plan
from forerun.search.improve.sources import ImproveSource, model_source, trace_source

__all__ = ["ImproveSource", "model_source", "trace_source", "with_fused_costs", "write_plan"]
