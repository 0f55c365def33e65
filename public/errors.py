"""Errors that forerun raises; each has the exit code of the command line."""

from forerun.search.answer.diagnosis.diagnosis import NothingFeasible
from forerun.spaces.errors import ForerunError, InfeasibleError, RequestError

__all__ = ["ForerunError", "InfeasibleError", "NothingFeasible", "RequestError"]
