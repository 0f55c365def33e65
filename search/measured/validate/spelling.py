"""Spellings of cells -> the schema's words: devices by their trade names, yes and no, numbers with commas.

The words are data (``data/spelling.yaml``). Cells in the schema's spelling and unknown cells are unchanged; assumptions
are counted like filled blanks.
"""

import math
import re
from collections.abc import Mapping
from functools import cache, lru_cache

from forerun.search.measured.validate.vocabulary import first, tables
from forerun.spaces.clusters.device import device_names
from forerun.spaces.strategies.axes import MODULES
from forerun.spaces.workload import PRECISIONS

COUNTED = ("gpus", "gpus_per_node", "layers", "hidden", "ffn_hidden", "heads", "kv_heads", "vocab", "seq_len",
           "moe_experts", "expert_hidden", "shared_hidden", "dp", "global_batch")  # fmt: skip
"""Columns whose numbers may have commas."""
MEASURED = ("step_time_s", "peak_mem_gib")
"""Measured columns: "nan" is refused, since it indicates an error of the measurement."""
AS_WRITTEN = frozenset({"run_id", "source", "notes", "group", "model", "strategy", "cluster", "switches"})
"""Columns of free text."""
KEPT: Mapping[str, frozenset[str]] = {
    "precision": frozenset(PRECISIONS),
    "schedule": frozenset({"vocab-1", "vocab-2", "interlaced", "redis", "baseline", "grad-accum"}),
    "attention": frozenset({"flash", "flash1", "flash2", "unfused", "unfused_half", "fused_softmax"}),
}
"""Words of the schema that a pattern could misread."""
_BLANK = re.compile(
    r"^([-\u2013]+|n/?a|n\.a\.|nan|null|unknown|unspecified|not (stated|specified|reported|available)|\?)$",
    re.IGNORECASE,
)
"""Spellings of a blank word ("none" is a setting, and "nan" is refused as a measured time)."""
_DENIES = re.compile(r"\bnon|\b(no|not|without|w/o|off|disabled?|false)\b|no_shard", re.IGNORECASE)
"""Patterns of negations, which would otherwise be read as the negated word: "no fp8", "1F1B (not interleaved)"."""
_GROUPS = re.compile(r"\d{1,3}(,\d{3})+(\.0+)?")
_PRODUCT = re.compile(r"(\d{1,9})\s*(?:nodes?\s*)?[x*\u00d7]\s*(\d{1,9})(?:\s*gpus?)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"(?=.*[1-9])(\d{1,9}(?:\.\d{1,9})?)\s*k", re.IGNORECASE)
_NEAR = 0.03
"""131k and 32k tokens are powers of two: 131,072 and 32,768; 10k is not."""


@lru_cache(maxsize=65536)
def understood(column: str, text: str) -> tuple[str, str | None]:
    """Return a cell in the schema's words, and the rule (``runs.RULES``) of an assumption, if any.

    >>> understood("device", "NVIDIA A100-SXM4-80GB"), understood("seq_len", "8k")
    (('a100-sxm4-80', None), ('8192', None))
    """
    if column in AS_WRITTEN:
        return text, None
    if _BLANK.search(text) and not (column in MEASURED and "nan" in text.lower()):
        return "", None
    if column in COUNTED:
        return _number(column, text), None
    patterns = tables("spelling").get(column)
    if patterns is None or not text or _kept(column, text.lower()):
        return text, None
    denies = _DENIES.search(text) is not None
    first_match = first(tuple(one for one in patterns if one.data.get("denies", False) == denies), text)
    if first_match is None:
        return text, None
    entry, match = first_match
    return match.expand(entry["is"]), entry.get("assumed")


def _kept(column: str, text: str) -> bool:
    if column == "device":  # "+": a mixture, which its reader reports
        return text in _devices() or "+" in text
    if column == "recompute":
        return set(text.split("+")) <= set(MODULES)
    return text.partition(":")[0] in KEPT.get(column, ())


def _number(column: str, text: str) -> str:
    """Return a count without commas; "8k" tokens are 8,192."""
    if _GROUPS.fullmatch(text):
        return text.replace(",", "")
    if column == "gpus" and (match := _PRODUCT.fullmatch(text)):
        return str(int(match[1]) * int(match[2]))
    if column == "seq_len" and (match := _THOUSANDS.fullmatch(text)):
        tokens = 1000 * float(match[1])
        power = 2 ** round(math.log2(tokens))
        return str(power if abs(power / tokens - 1) < _NEAR else round(tokens))
    return text


@cache
def _devices() -> frozenset[str]:
    return frozenset(device_names())
