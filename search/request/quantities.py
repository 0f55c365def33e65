"""Lengths, batches and packed documents in common notation: ``8k``, ``4M tokens``, ``64/gpu``, a file of lengths."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted
from forerun.spaces.reading import read_text
from forerun.spaces.units import parse_count

if TYPE_CHECKING:
    from forerun.spaces.opgraph.batch import PerDevice


LARGEST_FILE = 64 << 20


def document_tokens(text: str, seq_len: int) -> float:
    """Return the token-weighted mean document length, ``sum(l * l) / sum(l)``.

    Documents of this length have the same cost of attention. ``text``: tokens of every document, or a file with a
    length per line. Documents longer than a sequence of ``seq_len`` tokens are cut into full sequences and a remainder.

    Raises
    ------
    RequestError
        The text is neither, or a line is not a length.
    """
    if re.fullmatch(r"[0-9.]+[kKmM]?", text.strip()):
        tokens = float(parse_count(text))
        if not 1 <= tokens <= seq_len:
            raise RequestError(f"documents have 1 to {seq_len} tokens, those of a sequence, but got {text}")
        return tokens
    total = squares = 0.0
    for number, line in enumerate(read_text(Path(text), most=LARGEST_FILE, kind="a list of lengths").splitlines(), 1):
        if not line.strip():
            continue
        if not re.fullmatch(r"\d{1,12}", line.strip()) or int(line) == 0:
            raise RequestError(
                f"{text}, line {number}: a length is a whole number of tokens, but got {line.strip()[:40]!r}"
            )
        full_sequences, remainder = divmod(int(line), seq_len)
        total += int(line)
        squares += full_sequences * float(seq_len) ** 2 + float(remainder) ** 2
    if not total:
        raise RequestError(f"{text} has no lengths; write one per line, in tokens")
    return squares / total


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
        The text has none of these forms, or the tokens are not a whole number of sequences.
    """
    from forerun.spaces.opgraph.batch import parse_batch

    parts = str(text).split()
    if len(parts) != 2 or parts[1] not in ("token", "tokens"):
        return parse_batch(str(text).replace("_", "").replace(",", ""))
    tokens = token_count(parts[0])
    if seq_len is None:
        raise RequestError(f"a global batch of {text} needs a sequence length (--seq-len)")
    if tokens % seq_len:
        near = max(1, round(tokens / seq_len)) * seq_len
        raise RequestError(
            f"a global batch of {text} ({tokens:,} tokens) is not a multiple of the sequence length {seq_len:,}; "
            f"nearest: {near:,} tokens, which are {near // seq_len:,} sequences"
        )
    return tokens // seq_len
