"""The report: a finished search as one HTML page that opens without a network.

``document`` reads the folder of a search; ``page`` puts the page together from ``sections``, ``table``, ``scatter``,
``bars`` and ``timeline``; ``assets`` has page and script. What other pages use as well is in ``search/figures``.
Figures are boxes and SVG made here and not plotly's: the one bundle in its Python package has 4.8 MB, and what it draws
neither prints well, nor follows dark mode, nor stands on the page without script.
"""

from forerun.search.report.document import read_run
from forerun.search.report.page import report_html
from forerun.search.report.write import write_report

__all__ = ["read_run", "report_html", "write_report"]
