"""Improvements of a data-parallel step: buckets, fusions, pieces, recomputation, and what-if questions."""

from forerun.simulator.improve.buckets import best_buckets
from forerun.simulator.improve.search import RULES, BucketRule, Improvement, best_cap, improve, rule_of, rule_plan
from forerun.simulator.improve.step import Op, RankStep, StepPlan, simulate
from forerun.simulator.improve.what_if import WhatIf, group_plan, what_ifs
from forerun.simulator.improve.wires import LineWire, ServerWire

__all__ = [
    "RULES",
    "BucketRule",
    "Improvement",
    "LineWire",
    "Op",
    "RankStep",
    "ServerWire",
    "StepPlan",
    "WhatIf",
    "best_buckets",
    "best_cap",
    "group_plan",
    "improve",
    "rule_of",
    "rule_plan",
    "simulate",
    "what_ifs",
]
