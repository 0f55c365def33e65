"""Note on a strategy predicted faster than the first row, with the reason of its lower rank."""

from collections.abc import Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import AnyRow, Row
from forerun.search.order.first_row import beats
from forerun.search.order.preferences import against
from forerun.search.order.worth import risk_against, worth_of
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import Context, Strategy

WORTH = 0.005
"""Least gain of a named strategy."""
WEIGHTY = 0.005
"""Share of a step from which a second reason is named."""
OBJECTIVES = ("throughput", "cost")


def faster_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on gain and risk of the fastest strategy by predicted time alone.

    There is none if it is the first or second row (which has its own text), or little faster.
    """
    first, fastest = rows[0], search.alternatives.fastest
    if fastest is None or (len(rows) > 1 and rows[1].name == fastest.name):
        return ()
    gain = _gain(first, fastest)
    if gain < WORTH:
        return ()
    note = f"{fastest.name} on {fastest.gpus} GPUs: {gain:+.1%} predicted throughput"
    return (note + lower_because(setting.context, first, fastest),)


def lower_because(context: Context, first: AnyRow, other: AnyRow, rows: Sequence[AnyRow] = ()) -> str:
    """Return the reason why a faster flat strategy ranks below the first row, as the end of a sentence.

    Empty if it is not faster.

    ``rows``: the leaderboard. A strategy that one of them beats in speed and risk is never first.
    """
    if _gain(first, other) <= 0 or other.tree or other.facts is not None or not isinstance(other.strategy, Strategy):
        return ""
    better = next((row for row in rows if _beats(row, other)), None)
    if better is not None and _worth(context, other) < _worth(context, first):
        return f"; ranked lower because {better.name} is both faster and safer"
    reasons = reasons_against(context, first, other)
    return f"; ranked lower because of {', '.join(reasons)}" if reasons else ""


def _beats(row: AnyRow, other: AnyRow) -> bool:
    return beats([one.gpus * one.step_time_s for one in (row, other)], [row.oom_risk, other.oom_risk], 0, 1)


def _worth(context: Context, row: AnyRow) -> float:
    assert isinstance(row.strategy, Strategy)
    return row.gpus * worth_of(context, row.strategy, row.step_time_s, row.oom_risk)


def reasons_against(context: Context, first: AnyRow, other: AnyRow) -> list[str]:
    """Return the reasons that rank a strategy below the first row, largest first; a small one only if alone."""
    weights = {f"{other.oom_risk:.0%} OOM risk": risk_against(other.oom_risk, first.oom_risk)}
    if isinstance(first.strategy, Strategy) and isinstance(other.strategy, Strategy):
        weights |= against(context, other.strategy, first.strategy)
    said = sorted((reason for reason, weight in weights.items() if weight > 0), key=lambda reason: -weights[reason])
    return [reason for place, reason in enumerate(said) if not place or weights[reason] >= WEIGHTY]


def order_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on rows below the second that are predicted faster than a higher row, with reasons.

    ``rows`` are in rank order.
    """
    if setting.objective not in OBJECTIVES:
        return ()
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows[2:], start=2):
        above = [one for one in rows[:place] if _gain(one, row) >= WORTH]
        if above and all(isinstance(one.strategy, Strategy) and not one.tree for one in (row, *above)):
            slowest = max(above, key=lambda one: one.gpus * one.step_time_s)
            reasons = reasons_against(setting.context, slowest, row)
            if reasons:
                places.setdefault(reasons[0], []).append(place + 1)
    faster = (f"{_listed(ranks)} ({reason})" for reason, ranks in places.items())
    return (f"faster rows ranked lower: {', '.join(faster)}",) if places else ()


def _listed(ranks: Sequence[int]) -> str:
    *most, last = map(str, ranks)
    return f"{', '.join(most)} and {last}" if most else last


def _gain(first: AnyRow, other: AnyRow) -> float:
    return first.gpus * first.step_time_s / (other.gpus * other.step_time_s) - 1
