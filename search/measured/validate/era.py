"""Date of the software of a run, which decides its kernels and overlaps.

The date comes from the row's column, its source text or the publication (``data/sources.yaml``); else training in fp16
implies it, and other software counts as today's.
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
"""Date of the last fp16 trainings on devices with bf16. All published runs in fp16 whose date is known are of 2020 to
2023; read without their source, with today's kernels, they are predicted 3 to 25 % too fast."""


def software_date(row: TableRow) -> str:
    """Return year and month like 2022-05; empty if unknown."""
    for stated in (row["software_date"], row["software_version"], row["framework"]):
        if written := date_in(stated) or _container(stated):
            return written
    if written := date_in(row["source"]):
        return written
    known = first(table("sources", "dates"), row["source"])
    return str(known[0]["date"]) if known else ""


def assumed_date(row: TableRow) -> str:
    """Return the date implied by the precision; empty without one."""
    return HALF_BEFORE if row["precision"].lower() == "fp16" and not software_date(row) else ""


def release_in(text: str) -> str:
    """Return the number of a release that a text names; empty for a date, a container or a commit.

    >>> release_in("v0.9.0"), release_in("core_r0.8"), release_in("24.07"), release_in("2024-06"), release_in("8aa4619")
    ('0.9.0', '0.8', '', '', '')
    """
    if date_in(text) or _container(text):
        return ""
    match = _RELEASE.search(text)
    return match[0] if match else ""


def _container(text: str) -> str:
    """Return year and month of software with such version numbers, like NVIDIA's containers and Megatron-Bridge."""
    match = _MONTHLY.search(text)
    return f"20{match[1]}-{match[2]}" if match else ""


def date_in(text: str) -> str:
    """Return the first year and month in a text: in digits, as the number of a preprint, or the middle of a year.

    >>> date_in("benchmarks/llama3_h100_202412.md"), date_in("arXiv 2205.05198"), date_in("Table 5, 2022")
    ('2024-12', '2022-05', '2022-06')
    """
    for pattern in _WRITTEN:
        if match := pattern.search(text):
            return f"{match[1]}-{match[2]}"
    if match := _PREPRINT.search(text):
        return f"20{match[1]}-{match[2]}"
    return f"{match[1]}-{_MIDDLE}" if (match := _YEAR.search(text)) else ""
