"""A request whose stages may hold any number of layers, answered by a sampler."""

import time

from forerun.search.exhaustive import Problem, Scorer
from forerun.search.explain import why
from forerun.search.infeasible import NothingFeasible, diagnose
from forerun.search.leaderboard import Leaderboard, SpaceCounts, ranked, versions
from forerun.search.request import Request, resolve
from forerun.search.rows import rows_of
from forerun.search.samplers.choosing import Exploring, limits_of, sampler_named
from forerun.search.samplers.driver import Exploration, Seen, explore
from forerun.search.samplers.starts import Starts, flat_starts
from forerun.search.workers import IN_THIS_PROCESS, Choice
from forerun.simulator import score as simulator_score
from forerun.spaces.strategies.staged_space import StagedSpace


def explore_request(
    request: Request,
    *,
    exploring: Exploring | None = None,
    workers: Choice | None = None,
    seen: Seen | None = None,
    score: Scorer = simulator_score,
) -> Leaderboard:
    """Search what a request asks for, with explicit layers per stage where they help.

    The flat space is searched whole first (by ``workers``), so that the result is never worse than that search's.

    Raises:
        RequestError: the request is wrong, or the sampler cannot do it.
        NothingFeasible: neither search found anything that fits.
    """
    start = time.perf_counter()
    exploring, setting = exploring or Exploring(), resolve(request)
    space = StagedSpace(flat=setting.space(), reach=exploring.reach)
    sampler, reason = sampler_named(exploring, space)
    starts = flat_starts(space.flat, setting.objective, setting.top, workers or IN_THIS_PROCESS, score)
    found = explore(
        space,
        sampler,
        objectives=(setting.objective,),
        starts=starts.strategies,
        limits=limits_of(exploring, sampler.name),
        score=score,
        seen=seen,
    )
    best = found.feasible[: setting.top]
    rows = rows_of(setting.context, best, usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score) if best else ()
    rows = ranked(rows, setting.objective)
    board = Leaderboard(
        request={**setting.to_json(), "sampler": sampler.name, "seed": exploring.seed},
        space=_counts(space, starts, found),
        rows=rows,
        why=why(rows),
        defaults=(*setting.defaults, setting.axes_left_open(), f"boundaries of stages within {space.reach} layers"),
        notes=(*setting.notes, *starts.remarks, *_notes(sampler.name, reason, space, starts, found)),
        elapsed_s=time.perf_counter() - start,
        versions=versions(),
        workers=starts.workers,
    )
    if not rows:
        problem = Problem(space=space.flat, objective=setting.objective, top=setting.top)
        raise NothingFeasible(diagnose(setting, problem, starts.piece, score), board.to_json())
    return board


def _counts(space: StagedSpace, starts: Starts, found: Exploration) -> SpaceCounts:
    """Count what was looked at: the flat space, and what the sampler found beyond it."""
    beyond = {s: e for s, e in found.known.items() if s.layers_per_stage is not None}
    illegal = sum(evaluation is None for evaluation in beyond.values())
    fitting = sum(evaluation is not None and evaluation.fits for evaluation in beyond.values())
    rejected = dict(starts.piece.rejected)
    rejected["memory"] = rejected.get("memory", 0) + len(beyond) - illegal - fitting
    rejected["not dealt"] = illegal
    rejected["not looked at"] = space.size - starts.piece.walked - len(beyond)
    return SpaceCounts(
        size=space.size,
        legal=starts.piece.legal + len(beyond) - illegal,
        feasible=starts.piece.feasible + fitting,
        rejected={reason: n for reason, n in sorted(rejected.items(), key=lambda item: (-item[1], item[0])) if n},
    )


def _notes(name: str, reason: str, space: StagedSpace, starts: Starts, found: Exploration) -> list[str]:
    """Say what the sampler did and what it gained over the flat space."""
    flat = None if starts.piece.best is None or not len(starts.piece.best) else float(starts.piece.best.keys[0][0])
    notes = [f"sampler {name} ({reason}): {found.scored:,} strategies scored, stopped because {found.stopped}"]
    if flat is not None and found.curve:
        gain = flat / found.curve[-1][1] - 1
        notes.append(
            f"layers per stage gain {gain:.2%} over the best of the {starts.piece.legal:,} flat strategies"
            if gain > 0
            else f"no layers per stage were found that better the best of the {starts.piece.legal:,} flat strategies"
        )
    return notes
