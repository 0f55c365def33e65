"""Seconds of operators and collectives measured on this machine, used instead of the catalogue."""

from forerun.search.measured.profiling.document import Line, Profile, read_profile, write_profile
from forerun.search.measured.profiling.nccl_tests import read_nccl_tests
from forerun.search.measured.profiling.operators import operators_of, share_measured

__all__ = [
    "Line",
    "Profile",
    "operators_of",
    "read_nccl_tests",
    "read_profile",
    "share_measured",
    "write_profile",
]
