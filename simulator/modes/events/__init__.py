"""Training modes on the event engine."""

from forerun.simulator.modes.events.measure import event_prediction
from forerun.simulator.modes.events.trace import mode_trace, write_mode_trace

__all__ = ["event_prediction", "mode_trace", "write_mode_trace"]
