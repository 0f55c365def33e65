"""Lengths and batches in common notation: ``8k``, ``128k``, ``4M tokens``, ``64/gpu``."""

import re
from typing import TYPE_CHECKING

from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted

if TYPE_CHECKING:
    from forerun.spaces.opgraph.batch import PerDevice

BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20}
"""Suffixes of tokens per sequence and per step, which are powers of two in practice: 8k is 8192."""
TOKENS = re.compile(r"([0-9][0-9_,]{0,20})([kKmM]?)")


def token_count(text: str | int) -> int:
    """Return a number of tokens of at least 1.

    >>> token_count("8k"), token_count("128K"), token_count(4096)
    (8192, 131072, 4096)

    Raises
    ------
    RequestError
        The text is no such number.
    """
    match = TOKENS.fullmatch(str(text).strip())
    count = 0 if match is None else int(re.sub("[_,]", "", match[1])) * BINARY[match[2].lower()]
    if not 1 <= count < 10**18:
        raise RequestError(f"must be a whole number of at least 1, or like 8k (8192), but got {quoted(str(text))}")
    return count


def batch_of(text: "str | int | PerDevice", seq_len: int | None = None) -> "int | PerDevice":
    """Return a global batch: sequences, samples of each GPU (``64/gpu``), or tokens as sequences (``4M tokens``).

    >>> batch_of("4M tokens", 8192), batch_of(64)
    (512, 64)

    Raises
    ------
    RequestError
        The text has none of these forms, or the tokens are no whole number of sequences.
    """
    from forerun.spaces.opgraph.batch import parse_batch

    words = str(text).split()
    if len(words) != 2 or words[1] not in ("token", "tokens"):
        return parse_batch(str(text).replace("_", "").replace(",", ""))
    tokens = token_count(words[0])
    if seq_len is None:
        raise RequestError(f"a global batch of {text} needs a sequence length (--seq-len)")
    if tokens % seq_len:
        near = max(1, round(tokens / seq_len)) * seq_len
        raise RequestError(
            f"a global batch of {text} ({tokens:,} tokens) is no multiple of the sequence length {seq_len:,}; nearest: "
            f"{near:,} tokens, which are {near // seq_len:,} sequences"
        )
    return tokens // seq_len
