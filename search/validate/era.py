"""When the software of a run was made: what decides which of its kernels and overlaps existed.

A row says it in its column, or its source does in words; else the publication's own date is known
(``data/sources.yaml``); else the software is taken to be today's.
"""

import re

from forerun.search.validate.columns import TableRow
from forerun.search.validate.vocabulary import first, table

_WRITTEN = (
    re.compile(r"\b(20[12]\d)-(0[1-9]|1[0-2])(?!\d)"),
    re.compile(r"(?<!\d)(20[12]\d)(0[1-9]|1[0-2])(?!\d)"),
)
_PREPRINT = re.compile(r"\b(1[5-9]|2\d)(0[1-9]|1[0-2])\.\d{5}\b")
_YEAR = re.compile(r"(?<![\d.])(20[12]\d)(?![\d.])")
_MIDDLE = "06"


def software_date(row: TableRow) -> str:
    """Return year and month like 2022-05; empty where nobody says."""
    stated = row["software_date"].strip()
    if re.fullmatch(r"20\d\d(-\d\d){1,2}", stated):
        return stated[:7]
    if written := date_in(row["source"]):
        return written
    known = first(table("sources", "dates"), row["source"])
    return str(known[0]["date"]) if known else ""


def date_in(text: str) -> str:
    """Return the first year and month that a text names: in digits, as the number of a preprint, or as a year alone
    (its middle).

    >>> date_in("benchmarks/llama3_h100_202412.md"), date_in("arXiv 2205.05198"), date_in("Table 5, 2022")
    ('2024-12', '2022-05', '2022-06')
    """
    for pattern in _WRITTEN:
        if match := pattern.search(text):
            return f"{match[1]}-{match[2]}"
    if match := _PREPRINT.search(text):
        return f"20{match[1]}-{match[2]}"
    return f"{match[1]}-{_MIDDLE}" if (match := _YEAR.search(text)) else ""
