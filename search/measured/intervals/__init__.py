"""How far a measured step or peak may be from a predicted one where nobody has calibrated: an 80 % interval, and the
measured runs that it rests on."""

from forerun.search.measured.intervals.kriging import LEVEL, ErrorInterval, Peaks, busy_share, error_interval
from forerun.search.measured.intervals.unchecked import unchecked_gain

__all__ = ["LEVEL", "ErrorInterval", "Peaks", "busy_share", "error_interval", "unchecked_gain"]
