"""Lengths of the documents of packed sequences: a number, or a file of lengths."""

import re
from pathlib import Path

from forerun.spaces.errors import RequestError
from forerun.spaces.reading import read_text
from forerun.spaces.units import parse_count

LARGEST_FILE = 64 << 20


def document_tokens(text: str, seq_len: int) -> float:
    """Return the token-weighted mean document length, ``sum(l * l) / sum(l)``, whose equal documents have the same cost
    of attention.

    ``text``: tokens of every document, or a file with a length per line. Documents longer than a sequence of
    ``seq_len`` tokens are cut into full sequences and a remainder.

    Raises:
        RequestError: the text is neither, or a line is no length.
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
        whole, rest = divmod(int(line), seq_len)
        total += whole * seq_len + rest
        squares += whole * float(seq_len) ** 2 + float(rest) ** 2
    if not total:
        raise RequestError(f"{text} has no lengths; write one per line, in tokens")
    return squares / total
