"""When the software of a run was made: what decides which of its kernels and overlaps existed.

A row says it in its column, or its source does in words; else the publication's own date is known
(``data/sources.yaml``); else training in fp16 dates it, and other software is taken to be today's.
"""

import re

from forerun.search.measured.validate.columns import TableRow
from forerun.search.measured.validate.vocabulary import first, table

_WRITTEN = (
    re.compile(r"\b(20[12]\d)[-/](0[1-9]|1[0-2])(?!\d)"),
    re.compile(r"(?<!\d)(20[12]\d)(0[1-9]|1[0-2])(?!\d)"),
)
_PREPRINT = re.compile(r"\b(1[5-9]|2\d)(0[1-9]|1[0-2])\.\d{5}\b")
_YEAR = re.compile(r"(?<![\d.])(20[12]\d)(?![\d.])")
_MIDDLE = "06"
_RELEASE = re.compile(r"(?<![\d.])\d{1,2}(\.\d{1,3}){1,3}(?![\d.])|^\d{1,2}$")
_MONTHLY = re.compile(r"(?<![\d.])(1[89]|2\d)\.(0[1-9]|1[0-2])(?!\d)")


HALF_BEFORE = "2022-06"
"""When the last models were trained in fp16 on devices that have bf16. All published runs in fp16 whose date is known
are of 2020 to 2023; read without their source, with today's kernels, they are predicted 3 to 25 % too fast."""


def software_date(row: TableRow) -> str:
    """Return year and month like 2022-05; empty where nobody says."""
    for stated in (row["software_date"], row["software_version"], row["framework"]):
        if written := date_in(stated) or _container(stated):
            return written
    if written := date_in(row["source"]):
        return written
    known = first(table("sources", "dates"), row["source"])
    return str(known[0]["date"]) if known else ""


def assumed_date(row: TableRow) -> str:
    """Return what the precision says of the date, where nothing else says any; empty where it says nothing."""
    return HALF_BEFORE if row["precision"].lower() == "fp16" and not software_date(row) else ""


def release_in(text: str) -> str:
    """Return the number of a release that a text names; empty where it is a date, a container or a commit.

    >>> release_in("v0.9.0"), release_in("core_r0.8"), release_in("24.07"), release_in("2024-06"), release_in("8aa4619")
    ('0.9.0', '0.8', '', '', '')
    """
    if date_in(text) or _container(text):
        return ""
    match = _RELEASE.search(text)
    return match[0] if match else ""


def _container(text: str) -> str:
    """Return year and month of software that is numbered by them, as NVIDIA's containers and Megatron-Bridge are."""
    match = _MONTHLY.search(text)
    return f"20{match[1]}-{match[2]}" if match else ""


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
