"""A sample of a large space, and the bound that it sets on the other candidates.

The quality of candidates depends mostly on degrees; choices on other axes hardly turn a bad idea into a good one.
Therefore a few variants of every idea are scored first, then all variants of the best ideas. The best of these are
nearly always the best of the space, and their keys are nearly the tightest bound.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from forerun.search.explore.flat.bound import Bound
from forerun.search.explore.flat.exhaustive import (
    CHUNK,
    Problem,
    SliceResult,
    chunks_of,
    score_chunk,
    search_slice,
    within,
)
from forerun.search.order.objectives import objective_named
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.scorer import Progress, Scorer
from forerun.simulator import score as simulator_score
from forerun.simulator.core.bound import LeastStep
from forerun.spaces.strategies import AXES, DEGREES, Recompute, StrategySpace

WORTH = 1 << 26
"""Least candidates, legal or not, of a space with a sample; smaller spaces are scored in under a second."""
IDEAS = 32
"""Least number of ideas with all variants scored, and their number per round."""
WINDOW = 1 << 23
"""Candidates of a part in which the few variants of all ideas are scored, most GPUs first. Each part is bounded by
earlier ones, and small parts cost more than their bound saves."""
RECOMPUTES = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)


def search_space(problem: Problem, *, score: Scorer = simulator_score, device_s: float = math.inf) -> SliceResult:
    """Search a complete space in this process.

    ``device_s``: device-seconds of a step above which a best candidate need not be found (``Bound``
    allows for rounding).
    """
    space, size = problem.space, problem.space.size
    if not isinstance(space, StrategySpace) or device_s == math.inf or not _boundable(problem, score):
        return search_slice(bounded(problem, sampled(problem, score)), 0, size, score=score)
    degrees, plain = space.degrees(), objective_named(problem.objective).plain
    assert plain is not None
    least = _least_step(space)
    most = plain(device_s / degrees.column("gpus"), degrees).max(initial=0.0)
    result = search_slice(_with_bound(problem, most, most, least), 0, size)
    if result.best is None or not len(result.best) or (key := float(result.best.keys[0, 0])) <= most:
        return result
    # Preferences and risk may put a candidate behind a slower one, which the bound skipped.
    return search_slice(_with_bound(problem, key, key, least), 0, size)


def sampled(problem: Problem, score: Scorer = simulator_score, progress: Progress | None = None) -> SliceResult | None:
    """Score a sample of the space; None if the space is too small for a bound.

    ``progress`` is called with the numbers of finished and of all parts.

    Raises:
        EndedEarly: interrupted, with the best ideas so far.
    """
    space = problem.space
    if not isinstance(space, StrategySpace) or space.size < WORTH or not _boundable(problem, score):
        return None
    few = replace(problem, space=_few_variants(space), top=max(IDEAS, problem.top), ideas=True)
    result, least = SliceResult(), LeastStep(space.context)
    stop: KeyboardInterrupt | None = None
    parts = -(-few.space.size // WINDOW)
    try:
        for part in range(parts):
            if progress is not None:
                progress(part, parts + 1)
            high, low = (few.space.size * (parts - edge) // parts for edge in (part, part + 1))
            result = few.merged([result, search_slice(bounded(few, result, least), low, high)])
    except KeyboardInterrupt as interrupt:  # all variants of the ideas found so far are scored quickly
        stop = interrupt
    if result.best is not None:
        result = _all_variants(problem, result.best.index // few.idea_width, score)
    if stop is not None:
        raise EndedEarly(result, stop)
    return result


def _boundable(problem: Problem, score: Scorer) -> bool:
    """Check whether bounds of step times are bounds of the first key."""
    plain = objective_named(problem.objective).plain
    return score is simulator_score and problem.space.context.correction is None and plain is not None


def _all_variants(problem: Problem, ideas: NDArray[np.int64], score: Scorer) -> SliceResult:
    """Return the best variants of some ideas, best first."""
    space = problem.space
    assert isinstance(space, StrategySpace)
    result, least = SliceResult(), LeastStep(space.context)
    for start in range(0, len(ideas), IDEAS):
        table = space.below_ideas(np.sort(ideas[start : start + IDEAS]))
        kept = within(bounded(problem, result, least).bound, table)
        result = problem.merged([result, *(score_chunk(problem, part, score) for part in chunks_of([kept], CHUNK))])
    return result


def _few_variants(space: StrategySpace) -> StrategySpace:
    """Return the space with all combinations of degrees and a few usual choices on the other axes."""
    few = {axis: space.choices[axis] for axis in (*DEGREES, "split", "switches", "sp")}
    few |= {axis: space.choices[axis][:1] for axis in ("mbs", "shard", "recompute_layers", "placement")}
    few |= {axis: space.choices[axis][:2] for axis in ("vpp", "schedule")}
    few["zero"] = _those(space.choices["zero"], (1, 3))
    few["recompute"] = _those(space.choices["recompute"], RECOMPUTES)
    return replace(space, choices={axis: few[axis] for axis in AXES})


def _those(choices: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """Return the wanted choices, or the last one if no choice is wanted."""
    return tuple(choice for choice in choices if choice in wanted) or tuple(choices[-1:])


def bounded(problem: Problem, sample: SliceResult | None, least: LeastStep | None = None) -> Problem:
    """Return the problem with a bound for skipping candidates.

    The last of the best ``top`` of a ``sample`` sets the bound: worse candidates are not among the best of the space.
    Nor are they the best with a small risk or the fastest, if the sample has these. ``least`` bounds the steps (None: a
    new bound with the layers of all combinations of degrees).
    """
    space = problem.space
    if sample is None or sample.best is None or sample.fastest is None or not isinstance(space, StrategySpace):
        return problem
    if len(sample.best) < problem.top:
        return problem
    safest = sample.safest.keys[0].tolist() if sample.safest is not None else []
    worst = max([float(sample.best.keys[0, problem.top - 1]), *safest])
    return _with_bound(problem, worst, float(sample.fastest.keys[0, 0]), least or _least_step(space))


def _least_step(space: StrategySpace) -> LeastStep:
    """Return the bounds of a space's steps, with the layers of all combinations of degrees."""
    least = LeastStep(space.context)
    least.prepare(space.degrees())
    return least


def _with_bound(problem: Problem, worst: float, fastest: float, least: LeastStep) -> Problem:
    """Return the problem without candidates whose keys exceed ``worst``, and ``fastest`` by predicted time alone."""
    objective = objective_named(problem.objective)
    bound = Bound(worst=worst, fastest=fastest, objective=objective, least=least, slowdown=problem.slowdown)
    return replace(problem, bound=bound)
