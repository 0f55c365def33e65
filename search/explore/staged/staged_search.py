"""Search over strategies whose stages have any number of layers, by a sampler."""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from forerun.search.board.found import Alternatives, Found
from forerun.search.board.leaderboard import SpaceCounts
from forerun.search.board.rows import Row, rows_from
from forerun.search.explore.flat.best import first_row
from forerun.search.explore.flat.exhaustive import Problem, SliceResult
from forerun.search.explore.flat.flat_search import counts_of, problem_of
from forerun.search.explore.flat.variants import flat_rows, folded_rows
from forerun.search.explore.samplers.best_file import BestFile
from forerun.search.explore.samplers.contract import Evaluation
from forerun.search.explore.samplers.driver import Exploration, Seen, explore
from forerun.search.explore.samplers.registry import FLAT_ENUMERABLE, Exploring, limits_of, sampler_named
from forerun.search.explore.samplers.warm_starts import Starts, flat_starts, heuristic_starts
from forerun.search.formats.launchable import launchable
from forerun.search.order.ideas import Ranked, chosen_together
from forerun.search.order.objectives import objective_named
from forerun.search.request.interrupts import EndedEarly
from forerun.search.request.limits import NO_LIMITS
from forerun.search.request.scorer import OnProgress, Scorer
from forerun.search.request.setting import Setting, legal_strategy
from forerun.search.workers import IN_THIS_PROCESS, Choice
from forerun.simulator import score as simulator_score
from forerun.spaces.documents import read_json
from forerun.spaces.errors import RequestError
from forerun.spaces.reading import read_text
from forerun.spaces.strategies import Strategy, parse_strategy
from forerun.spaces.strategies.stage_laws import immovable
from forerun.spaces.strategies.staged_space import StagedSpace
from forerun.spaces.units import format_seconds

RESULTS = ("leaderboard.json", "best.json")
"""Files of a folder with strategies, best source first."""
LARGEST_RESULT = 1 << 28
"""Bytes; see ``board.folder``."""


def given_starts(setting: Setting, space: StagedSpace, given: tuple[str, ...]) -> tuple[list[Strategy], list[str]]:
    """Return the user's strategies that are legal in this space, in canonical form, and notes on others.

    Raises:
        RequestError: a text is neither a strategy nor a file of results, or a strategy given as text breaks a law.
    """
    starts: list[Strategy] = []
    notes = []
    for text in given:
        path = Path(text)
        if not (path.exists() or text.endswith(".json")):
            starts.append(space.canonical(legal_strategy(setting, text)))
            continue
        strategies = [space.canonical(strategy) for strategy in _read(path)]
        kept = [s for s, keeps in zip(strategies, space.legal(strategies), strict=True) if keeps]
        starts += kept
        notes.append(f"{len(kept)} of {len(strategies)} strategies of {text} are in this space and used as starts")
    outside = [s for s, keeps in zip(starts, space.legal(starts), strict=True) if not keeps]
    notes += [f"{strategy} is outside the search space and is not used as a start" for strategy in outside]
    return [strategy for strategy in dict.fromkeys(starts) if strategy not in outside], notes


def _read(path: Path) -> list[Strategy]:
    """Return the strategies of a file or folder of results.

    Raises:
        RequestError: there are no strategies.
    """
    if path.is_dir():
        files = [path / name for name in RESULTS if (path / name).exists()]
        if not files:
            raise RequestError(f"{path} has no {' or '.join(RESULTS)} to start from")
        return [strategy for file in files for strategy in _read(file)]
    text = read_text(path, most=LARGEST_RESULT, kind="a result")
    try:
        document: Any = read_json(text, str(path), own=True)
        rows = document["leaderboard"] if "leaderboard" in document else [document]
        return [parse_strategy(str(row["strategy"])) for row in rows]
    except (RequestError, KeyError, TypeError):
        raise RequestError(
            f"{path} is not a result of a search; name its leaderboard.json or best.json, or write a strategy like "
            '"tp8 pp2 dp4 mbs1"'
        ) from None


def search_stages(
    setting: Setting,
    exploring: Exploring | None = None,
    *,
    workers: Choice | None = None,
    on_progress: OnProgress | None = None,
    score: Scorer = simulator_score,
) -> Found:
    """Search a space in which stages may differ, the flat space first (by ``workers``).

    Raises:
        RequestError: the setting has unsupported options, or the sampler does not support it.
        EndedEarly: interrupted, with the ``Found`` so far.
    """
    start = time.perf_counter()
    exploring = exploring or Exploring()
    _check(setting)
    space = exploring.space(setting.space())
    if space.offload and not any(hosted[-1] for hosted in space.hosted):
        why = " and ".join(dict.fromkeys(immovable(setting.context)))
        raise RequestError(f"stages cannot keep tensors on the host: {why}; leave offload away from --per-stage")
    sampler, reason = sampler_named(exploring, space)
    given, notes = given_starts(setting, space, exploring.starts)
    flat = problem_of(setting)
    starts = _starts(space, setting, flat, workers or IN_THIS_PROCESS, score, on_progress)
    limits = limits_of(exploring, sampler.name)
    if limits.seconds is not None:
        limits = replace(limits, seconds=max(limits.seconds - (time.perf_counter() - start), 0.0))
    best_file = None if exploring.best is None else BestFile(exploring.best, setting, sampler.name)

    def found_by(exploration: Exploration) -> Found:
        return Found(
            rows=_rows(setting, exploration),
            space=_counts(space, starts, exploration),
            remarks=(*starts.remarks, *notes, *_notes(sampler.name, reason, space, starts, exploration)),
            open_axes=tuple(_open_axes(space)),
            request={"sampler": sampler.name, "seed": exploring.seed, "per_stage": list(exploring.per_stage)},
            workers=starts.workers,
            alternatives=Alternatives(
                fastest=first_row(setting, flat, starts.piece.fastest),
                safest=first_row(setting, flat, starts.piece.safest),
            ),
            closest=first_row(setting, flat, starts.piece.closest),
            flat_space=counts_of(starts.piece),
        )

    try:
        exploration = explore(
            space,
            sampler,
            objective=setting.objective,
            starts=tuple(dict.fromkeys((*given, *starts.strategies))),
            limits=limits,
            score=score,
            seen=None if on_progress is None else _telling(on_progress, limits.evaluations, setting.objective),
            improved=None if best_file is None else best_file.improved,
            slowdown=flat.slowdown,
        )
    except EndedEarly as stop:
        raise (EndedEarly(found_by(stop.found), stop) if stop.found.feasible else stop) from None
    return found_by(exploration)


def _check(setting: Setting) -> None:
    """Refuse settings unsupported by the search of stages that differ.

    Raises:
        RequestError: there are several objectives or limits on the training.
    """
    if objective_named(setting.objective).front or setting.limits != NO_LIMITS:
        raise RequestError(
            "stages that differ are searched for one objective and without limits on the whole training; "
            "leave --per-stage and --sampler away"
        )


def _rows(setting: Setting, exploration: Exploration) -> tuple[Row, ...]:
    """Return the best strategies as rows."""
    ranked = [
        _ranked(one, evaluation) for one in exploration.feasible if (evaluation := exploration.known[one]) is not None
    ]
    rows_of = partial(_rows_of, setting, exploration)
    top = chosen_together(setting.top)
    return folded_rows(setting, ranked, rows_of, top, launchable=partial(launchable, setting.context))


def _ranked(strategy: Strategy, evaluation: Evaluation) -> Ranked:
    scores, row = evaluation.scores, evaluation.row
    return Ranked(strategy, evaluation.value, float(scores.step_time_s[row]), float(scores.peak_memory_bytes[row]))


def _rows_of(setting: Setting, exploration: Exploration, strategies: Sequence[Strategy]) -> tuple[Row, ...]:
    if not strategies:
        return ()
    return rows_from(
        setting.context, strategies, exploration.scores(strategies), usd_per_gpu_hour=setting.usd_per_gpu_hour
    )


def _telling(on_progress: OnProgress, evaluations: int, objective: str) -> Seen:
    """Return the function that reports progress of a sampler, and its best step."""

    def seen(scored: int, best: float | None) -> None:
        best_text = "" if best is None or objective != "throughput" else f", best {format_seconds(best)}"
        # Samplers usually end long before their limit, which therefore says nothing about the remaining time.
        on_progress("exploring stages", scored, 0, f"{scored:,} of at most {evaluations:,}{best_text}")

    return seen


def _starts(
    space: StagedSpace, setting: Setting, flat: Problem, workers: Choice, score: Scorer, on_progress: OnProgress | None
) -> Starts:
    """Return the strategies to begin with: from the flat space, or heuristics if that is too large."""
    if space.flat.size <= FLAT_ENUMERABLE:
        starts = flat_starts(flat, workers, score, on_progress)
        return _with_shown(setting, flat, starts, score) if flat.ideas else starts
    strategies = tuple(heuristic_starts(space))
    remark = f"{space.flat.size:.3g} flat candidates are too many to enumerate; the search starts from heuristics"
    return Starts(strategies=strategies, piece=SliceResult(), workers="in this process", remarks=(remark,))


def _with_shown(setting: Setting, flat: Problem, starts: Starts, score: Scorer) -> Starts:
    """Return starts with all rows of the flat search, so that no result is worse than these."""
    if starts.piece.best is None or not len(starts.piece.best):
        return starts
    rows = flat_rows(setting, flat, starts.piece.best, score)
    shown = [strategy for row in rows for strategy in (row.strategy, *(variant.strategy for variant in row.variants))]
    return replace(starts, strategies=tuple(dict.fromkeys((*starts.strategies, *shown))))


def _open_axes(space: StagedSpace) -> list[str]:
    """Describe the settings that may differ between stages."""
    axes = [f"boundaries of stages within {space.reach} layers"] if space.reach else []
    axes += ["recompute of every stage"] if space.recompute else []
    axes += ["tp of the second half of the stages"] if space.halves else []
    return axes + (["what each stage keeps on the host"] if space.offload else [])


def _counts(space: StagedSpace, starts: Starts, exploration: Exploration) -> SpaceCounts:
    """Count the searched candidates: the flat space, and the sampler's strategies beyond it."""
    enumerated = starts.piece.enumerated > 0
    beyond = {s: e for s, e in exploration.known.items() if not enumerated or _staged(s)}
    illegal = sum(evaluation is None for evaluation in beyond.values())
    fitting = sum(evaluation is not None and evaluation.fits for evaluation in beyond.values())
    rejected = dict(starts.piece.rejected)
    rejected["memory"] = rejected.get("memory", 0) + len(beyond) - illegal - fitting
    rejected["layers per stage"] = illegal
    rejected["not evaluated"] = space.size - starts.piece.enumerated - len(beyond)
    return SpaceCounts(
        size=space.size,
        legal=starts.piece.legal + len(beyond) - illegal,
        feasible=starts.piece.feasible + fitting,
        rejected={reason: n for reason, n in sorted(rejected.items(), key=lambda item: (-item[1], item[0])) if n},
    )


def _staged(strategy: Strategy) -> bool:
    """Whether a strategy is outside the flat space."""
    return strategy.layers_per_stage is not None or strategy.stage_choices is not None


def _notes(name: str, reason: str, space: StagedSpace, starts: Starts, exploration: Exploration) -> list[str]:
    """Describe the work of the sampler and its gain over the flat space."""
    notes = [
        f"sampler {name} ({reason}): {exploration.scored:,} strategies scored, stopped because {exploration.stopped}"
    ]
    flat = starts.piece.best
    best = exploration.known[exploration.feasible[0]] if exploration.feasible else None
    if flat is not None and len(flat) and best is not None:
        # The first differing key is the gain.
        pairs = [(float(before), after) for before, after in zip(flat.keys[:, 0], best.keys, strict=True)]
        gain = next((before / after - 1 for before, after in pairs if before != after), 0.0)
        notes.append(
            f"uneven stages gain {gain:.2%} over the best of the {starts.piece.legal:,} flat strategies"
            if gain > 0
            else f"no uneven stages are better than the best of the {starts.piece.legal:,} flat strategies"
        )
    return notes
