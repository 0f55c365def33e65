"""Note on the number of GPUs beyond which more GPUs add little."""

from collections.abc import Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import AnyRow
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.setting import Setting

KNEE = "Fewer GPUs:"
"""First words of the note."""
PAYS = 0.5
"""Least share of linear scaling between consecutive numbers of GPUs for which the added ones pay."""


def knee_note(setting: Setting[AnyContext], rows: Sequence[AnyRow], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the row with the most GPUs that still pay, if the first row has more."""
    if setting.objective != "throughput":
        return ()
    best: dict[int, AnyRow] = {}
    for row in rows:
        best.setdefault(row.gpus, row)
    counts = sorted(count for count in best if count <= rows[0].gpus)
    knee = best[counts[0]]
    for count in counts[1:]:
        gain, more = best[count].throughput / knee.throughput - 1, count / knee.gpus - 1
        if gain >= PAYS * more:
            knee = best[count]
    if knee.gpus == rows[0].gpus:
        return ()
    share, part = knee.throughput / rows[0].throughput, knee.gpus / rows[0].gpus
    return (
        f"{KNEE} {knee.name} on {knee.gpus:,} GPUs has {share:.0%} of row 1's throughput with {part:.0%} of its GPUs",
    )
