"""Offload to the host by stage: shares of optimizer states and of activations.

A strategy with shares overrides the switches ``optimizer-offload`` and ``activation-offload``, which apply to all
stages.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.spaces.frameworks.profile import FrameworkProfile

_SHARE = r"(?:0(?:\.\d{1,4})?|1(?:\.0{1,4})?)"
_ENTRY = re.compile(rf"({_SHARE})(?:\*(\d{{1,6}}))?")
EIGHTHS = 8
"""Number of equal parts of 1 in the shares of a search."""
OFFLOAD_WORDS = ("optimizer-offload", "activation-offload")
"""Words of a strategy, in the order of the fields of ``StageOffload``."""


class StageOffload(NamedTuple):
    """Shares (0 to 1) of one stage's tensors in host memory."""

    optimizer: float = 0.0
    """Share of its optimizer states, which the host updates."""
    activations: float = 0.0
    """Share of the activations that its layers keep, including the inputs of recomputed layers."""


def offload_of(profile: "FrameworkProfile", entries: Sequence[StageOffload] | None, stage: int = 0) -> StageOffload:
    """Return the offload of a stage, from its strategy or else from the software's switches."""
    if entries is not None:
        return entries[stage]
    return StageOffload(profile.optimizer_on_host, profile.activations_on_host)


def offload_words(entries: Sequence[StageOffload]) -> Iterator[str]:
    """Yield the offload of every stage as words of a strategy, with equal neighbours joined.

    One number is for all stages; a missing word means no offload.

    >>> list(offload_words([StageOffload(0.5)] * 2 + [StageOffload(0.5, 0.25)]))
    ['optimizer-offload=0.5', 'activation-offload=0*2,0.25']
    """
    for word, shares in zip(OFFLOAD_WORDS, zip(*entries, strict=True), strict=True):
        if not any(shares) and (word != OFFLOAD_WORDS[0] or any(one.activations for one in entries)):
            continue
        runs = [(share, len(list(run))) for share, run in itertools.groupby(shares)]
        uniform = len(runs) == 1
        yield f"{word}=" + ",".join(f"{share:g}" if uniform or n == 1 else f"{share:g}*{n}" for share, n in runs)


def parse_offload(texts: Sequence[str | None], pp: int) -> tuple[StageOffload, ...]:
    """Read the shares of each of ``pp`` stages; ``texts``: one per entry of ``OFFLOAD_WORDS``, None if missing.

    >>> parse_offload(("1*2,0", None), 3)[1:]
    (StageOffload(optimizer=1.0, activations=0.0), StageOffload(optimizer=0.0, activations=0.0))

    Raises:
        RequestError: a share cannot be read, or the number of shares is wrong.
    """
    columns = [
        _shares(word, "0" if text is None else text, pp) for word, text in zip(OFFLOAD_WORDS, texts, strict=True)
    ]
    return tuple(StageOffload(*shares) for shares in zip(*columns, strict=True))


def _shares(word: str, text: str, pp: int) -> list[float]:
    shares: list[float] = []
    for entry in text.split(","):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise RequestError(f"cannot read {entry!r} in {word}={text}; write shares from 0 to 1 like 0.5 or 0.25*4")
        count = int(match[2] or 1)
        if len(shares) + count > pp:
            raise RequestError(f"{word}= must name {pp} stages (pp) or one share for all, but {text} names more")
        shares += [float(match[1])] * count
    if len(shares) == 1 and "*" not in text:
        shares *= pp
    if len(shares) != pp:
        raise RequestError(f"{word}= must name {pp} stages (pp) or one share for all, but got {len(shares)}")
    return shares
