"""Heuristic starts: strategies that an engineer would try without a search.

Tensor parallel within a scale-up domain, pipeline over the fewest stages that fit, other devices as replicas; one
sequence per microbatch, a sharded optimizer, sequence parallel with tensor parallel (Narayanan et al., arXiv
2104.04473, section 5.4, takeaways 1 to 3; Megatron-LM's recipes).
"""

import itertools
from collections.abc import Iterator

from forerun.spaces.strategies import Recompute, Split, Strategy
from forerun.spaces.strategies.software import settled
from forerun.spaces.strategies.staged_space import StagedSpace

MOST = 64
"""Most strategies: one call of the simulator."""


def heuristic_starts(space: StagedSpace) -> list[Strategy]:
    """Return legal strategies in the order in which an engineer would try them: least split first."""
    starts = [strategy for strategy, keeps in _tried(space) if keeps]
    starts.sort(key=lambda strategy: (strategy.tp * strategy.pp, strategy.recompute, strategy.pp, -strategy.devices))
    return starts[:MOST]


def _tried(space: StagedSpace) -> Iterator[tuple[Strategy, bool]]:
    choices = space.flat.choices
    domain = space.context.cluster.scale_up_size
    zero = max(zero for zero in choices["zero"] if zero <= 1) if min(choices["zero"]) <= 1 else min(choices["zero"])
    counts = {choices["gpus"][0], choices["gpus"][-1]}
    tps = [tp for tp in choices["tp"] if tp <= domain] or [choices["tp"][0]]
    strategies = []
    for gpus, tp, pp, kind in itertools.product(sorted(counts), tps, choices["pp"], choices["recompute"]):
        dp, rest = divmod(gpus, tp * pp)
        if rest or not dp:
            continue
        for split in choices["split"] if pp > 1 else (int(Split.EVEN),):
            strategies.append(
                Strategy(
                    dp=dp,
                    tp=tp,
                    pp=pp,
                    mbs=choices["mbs"][0],
                    zero=zero if dp > 1 else 0,
                    sp=tp > 1 and max(choices["sp"]) == 1,
                    recompute=Recompute(kind),
                    split=Split(split),
                )
            )
    strategies = [settled(space.context, strategy) for strategy in strategies]
    yield from zip(strategies, space.legal(strategies), strict=True)
