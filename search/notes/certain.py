"""Rows of a calibrated context with their intervals; rows of any other as they are, without loading what that needs."""

from forerun.search.board.rows import Row
from forerun.spaces.strategies import Context


def certain(context: Context, rows: tuple[Row, ...], objective: str | None = None) -> tuple[Row, ...]:
    """Return rows with the interval of their step time and the best rank each cannot be told apart from.

    Rows of different numbers of devices are compared only where ``objective`` ranks by cost.
    """
    if context.correction is None or not rows:
        return rows
    from forerun.search.notes.calibrated import with_certainty

    return with_certainty(context, rows, across_sizes=objective == "cost")
