"""Training logs of runs; ``search/formats/logs`` reads them."""

from forerun.search.formats.logs import LogReport, read_log

__all__ = ["LogReport", "read_log"]
