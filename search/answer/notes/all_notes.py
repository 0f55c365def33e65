"""Everything that is said of the rows of a leaderboard, the same by whatever way they were found."""

from collections.abc import Sequence
from typing import Any

from forerun.search.answer.notes.divisible import divisible_note
from forerun.search.answer.notes.faster import faster_note, order_note
from forerun.search.answer.notes.goodput import goodput_note
from forerun.search.answer.notes.in_time import in_time_note
from forerun.search.answer.notes.low_oom_risk import safer_note
from forerun.search.answer.notes.switched import switches_note
from forerun.search.answer.notes.uneven_experts import uneven_note
from forerun.search.answer.notes.validated_runs import checked_note
from forerun.search.board.found import Alternatives
from forerun.search.board.rows import Row
from forerun.search.request.kinds import TRANSFORMERS, kind_of
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.simulator import score as simulator_score


def notes_for(
    setting: Setting[Any],
    rows: Sequence[Row[Any]],
    score: Scorer = simulator_score,
    alternatives: Alternatives | None = None,
) -> tuple[str, ...]:
    """Return what is to be said of ranked rows: what was measured of the first, a faster and a safer one, a better
    batch, and how well such predictions met measured runs. ``score``: what other candidates are scored with."""
    if not rows:
        return ()
    if kind_of(setting.context) is not TRANSFORMERS:  # what the others say was measured of transformers
        return (*measured_note(setting, rows[0]), *fast_kernels_note(rows[0]))
    alternatives = alternatives or Alternatives()
    return (
        *measured_note(setting, rows[0]),
        *goodput_note(rows[0]),
        *faster_note(setting.context, rows, alternatives.fastest),
        *order_note(setting, rows),
        *safer_note(setting, rows, score, alternatives.safest, unscored=alternatives.unscored),
        *uneven_note(setting, rows, score),
        *divisible_note(setting, rows, score),
        *in_time_note(setting, rows, score),
        *switches_note(setting, rows[0], score),
        *checked_note(setting.context, rows[0]),
    )


def fast_kernels_note(row: Row[Any]) -> tuple[str, ...]:
    """Return as one note why a network of convolutions may have an MFU above 100 %."""
    told = f"MFU {row.mfu:.0%}: model FLOPs are those of direct convolutions, and Winograd kernels multiply less"
    return (told,) if row.mfu > 1 else ()


def measured_note(setting: Setting[Any], row: Row[Any]) -> tuple[str, ...]:
    """Return as one note how much of a row's operators a profile has measured; none without a profile."""
    if setting.context.cluster.device.measured is None:
        return ()
    from forerun.search.measured.profiling import share_measured

    share, known, count = share_measured(setting.context, row.strategy)
    return (
        f"{share:.0%} of the operator time of {row.name} was measured ({known} of {count} operators); the rest is the "
        "fitted surface scaled to what was",
    )
