"""Training logs of every framework: step times, peak memory and end of the run."""

from forerun.search.formats.logs.read import LogReport, read_log, stated_step_s

__all__ = ["LogReport", "read_log", "stated_step_s"]
