"""80 % intervals of predicted steps and peaks without a calibration, from the errors of published runs."""

from forerun.search.measured.intervals.kriging import LEVEL, Peaks, busy_share, error_interval
from forerun.search.measured.intervals.unchecked import unchecked_gain

__all__ = ["LEVEL", "Peaks", "busy_share", "error_interval", "unchecked_gain"]
