"""What would make a data-parallel step faster: buckets, fusions, pieces, recomputation, and questions of what if."""

from forerun.simulator.improve.buckets import best_buckets
from forerun.simulator.improve.defaults import RULES, BucketRule, best_cap, rule_of, rule_plan
from forerun.simulator.improve.search import Change, Improvement, improve
from forerun.simulator.improve.step import Op, Outcome, Plan, Step, simulate
from forerun.simulator.improve.what_if import WhatIf, what_ifs
from forerun.simulator.improve.wires import LineWire, RuleWire, ServerWire, Wire

__all__ = [
    "RULES",
    "BucketRule",
    "Change",
    "Improvement",
    "LineWire",
    "Op",
    "Outcome",
    "Plan",
    "RuleWire",
    "ServerWire",
    "Step",
    "WhatIf",
    "Wire",
    "best_buckets",
    "best_cap",
    "improve",
    "rule_of",
    "rule_plan",
    "simulate",
    "what_ifs",
]
