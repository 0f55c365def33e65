"""Everything that is said of the rows of a leaderboard, the same by whatever way they were found."""

from collections.abc import Sequence

from forerun.search.board.rows import Row
from forerun.search.notes.checked import checked_note
from forerun.search.notes.goodput import goodput_note
from forerun.search.notes.rounder import rounder_note
from forerun.search.notes.safer import safer_note
from forerun.search.request.request import Setting
from forerun.search.request.scorer import Scorer
from forerun.simulator import score as simulator_score


def notes_for(setting: Setting, rows: Sequence[Row], score: Scorer = simulator_score) -> tuple[str, ...]:
    """Return what is to be said of ranked rows: what was measured of the first, a safer row, a better batch, and how
    well such predictions met measured runs. ``score``: what other candidates are scored with."""
    if not rows:
        return ()
    return (
        *measured_note(setting, rows[0]),
        *goodput_note(setting, rows[0]),
        *safer_note(setting, rows, score),
        *rounder_note(setting, rows, score),
        *checked_note(setting.context, rows[0]),
    )


def measured_note(setting: Setting, row: Row) -> tuple[str, ...]:
    """Return as one note how much of a row's operators a profile has measured; none without a profile."""
    if setting.context.cluster.device.measured is None:
        return ()
    from forerun.search.profiling import share_measured

    share, known, count = share_measured(setting.context, row.strategy)
    return (
        f"{share:.0%} of the operator time of {row.name} was measured ({known} of {count} operators); the rest is the "
        "fitted surface scaled to what was",
    )
