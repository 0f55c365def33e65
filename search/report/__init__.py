"""The report: a finished search as one HTML page that opens without a network.

``document`` reads the folder of a search; ``page`` puts the page together from ``sections``, ``table``, ``scatter``,
``bars`` and ``timeline``; ``assets`` has page and script. Parts shared with other pages are in ``search/figures``.
Figures are boxes and SVG, not plotly's: its bundle has 4.8 MB, and its figures neither print well, nor follow dark
mode, nor appear without script.
"""

from forerun.search.report.document import read_run
from forerun.search.report.page import report_html, write_report

__all__ = ["read_run", "report_html", "write_report"]
