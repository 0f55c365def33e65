"""Seconds of operators and collectives as this machine takes them, measured once and used instead of the catalogue."""

from forerun.search.profiling.document import Line, Profile, read_profile, write_profile
from forerun.search.profiling.nccl_tests import Reading, read_nccl_tests
from forerun.search.profiling.operators import Operator, operators_of, share_measured

__all__ = [
    "Line",
    "Operator",
    "Profile",
    "Reading",
    "operators_of",
    "read_nccl_tests",
    "read_profile",
    "share_measured",
    "write_profile",
]
