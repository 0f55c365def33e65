"""How far a measured step or peak may be from a predicted one where nobody has calibrated: an 80 % interval, and the
measured runs that it rests on."""

from forerun.search.measured.certainty.intervals import LEVEL, Certainty, Peaks, busy_share, certainty_of
from forerun.search.measured.certainty.unchecked import unchecked_gain

__all__ = ["LEVEL", "Certainty", "Peaks", "busy_share", "certainty_of", "unchecked_gain"]
