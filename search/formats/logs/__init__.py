"""Training logs of every framework: step times, peak memory and how the run ended."""

from forerun.search.formats.logs.read import LogReport, read_log, stated_step_s

__all__ = ["LogReport", "read_log", "stated_step_s"]
