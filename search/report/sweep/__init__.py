"""The page of a sweep: all its searches on one page that opens without a network.

``data`` turns records into columns, ``page`` puts the page together; ``sweep.js`` draws the figures and shows the table
a piece at a time, so that a phone can show 100,000 rows.
"""

from forerun.search.report.sweep.page import sweep_html

__all__ = ["sweep_html"]
