"""The best tree around one flat strategy: coordinate descent over settings while the step becomes shorter.

Settings are the cuts of attention, MLP and vocabulary layers, tensors in host memory, and recompute: nothing, the core
of attention, and in addition the fewest layers (in full, or their attention or MLP alone) that fit. Every choice of one
setting is predicted with the others fixed, the most promising are simulated and the best is kept, until a round changes
nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from forerun.search.explore.trees.judge import Judge, Judged
from forerun.spaces.strategies import Context, Recompute, Strategy
from forerun.spaces.trees.vary import Cutting, Variation

ROUNDS = 3
"""Rounds over all settings: the third seldom changes anything."""
PLAYED = 3
"""Number of simulated variations of a round, most promising first."""
SLACK = 1.03
"""Largest ratio of a rough time to the best step for a simulation: rough times have errors of a few per cent."""


@dataclass(frozen=True, slots=True)
class Start:
    """A flat strategy to start from. ``step_s``: event-level step time, None if it does not fit."""

    strategy: Strategy
    step_s: float | None


def best_around(judge: Judge, start: Start, within_s: float) -> Judged | None:
    """Return the best variation of a start; None if none fits and is faster than the start and ``within_s``."""
    flat = judge.flat(Variation(strategy=start.strategy))
    if flat is None:
        return None
    # Rough times have about the same error for all trees around one start.
    off = 1.0 if start.step_s is None else start.step_s / flat.rough_s
    best: Judged | None = None
    least_s = min(within_s, within_s if start.step_s is None else start.step_s)
    if flat.rough_s * off > within_s * SLACK and start.step_s is None:
        return None
    for _ in range(ROUNDS):
        before, now = best, flat.variation if best is None else best.variation
        looked = (judge.fit(option) for option in _options(judge.context, now))
        fitted = {judged.variation: judged for judged in looked if judged is not None}
        fitted.pop(now, None)
        for judged in sorted(fitted.values(), key=lambda each: each.rough_s)[:PLAYED]:
            if judged.rough_s * off > least_s * SLACK:
                break
            played = judge.play(judged)
            if played is not None and played.step_s < least_s:
                best, least_s = played, played.step_s
        if best is before:
            break
    return best


def _options(context: Context, now: Variation) -> Iterator[Variation]:
    """Yield variations in a single setting, with recomputed layers to be determined again."""
    plain = replace(now, recomputed=())
    for kind in (Recompute.NONE, Recompute.SELECTIVE):
        named = None if kind == now.strategy.recompute else kind
        for module in ("", "mlp", "attention"):
            yield replace(plain, recompute=named, module=module)
    if context.framework.host_tensors:
        yield replace(plain, host=() if now.host else context.framework.host_tensors)
    cuttings = (None, *_cuttings(context, now.strategy))
    for cutting in cuttings:
        yield replace(plain, mlp=cutting)
    for cutting in cuttings:
        yield replace(plain, attention=cutting)
    for cutting in cuttings:
        yield replace(plain, vocabulary=cutting)


def _cuttings(context: Context, strategy: Strategy) -> Iterator[Cutting]:
    """Yield the cuts of a module on a stage: tp in powers of two within the fastest links.

    Sequence parallelism follows the strategy; a strategy without tp gets cuts with and without it.
    """
    wide = strategy.dp * strategy.tp
    tp = 1
    while tp <= min(wide, max(context.cluster.scale_up_size, strategy.tp)):
        for sp in (False,) if tp == 1 else (True, False) if strategy.tp == 1 else (strategy.sp,):
            if wide % tp == 0 and tp != strategy.tp:
                yield Cutting(tp=tp, sp=sp)
        tp *= 2
