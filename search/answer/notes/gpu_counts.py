"""Notes on numbers of GPUs: idle devices in every rack that pay, and the number beyond which more add little."""

from collections.abc import Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import AnyRow, Row
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import table_of
from forerun.spaces.strategies.racks import rack_devices, rack_use, spread_use, with_domain

WORTH = 0.01
"""Least gain per rented device of a proposed placement."""
ROWS = 10
"""Number of rows checked."""


def racks_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the row that gains most from idle devices in each rack, if it pays for the further racks."""
    context, best = setting.context, (0.0, "")
    rack, node = rack_devices(context.cluster), context.cluster.devices_per_node
    for row in rows[:ROWS]:
        filled, spread = rack_use(context.cluster, row.strategy), spread_use(context.cluster, row.strategy)
        if row.tree or filled is None or spread is None or filled.domain == spread.domain:
            continue
        scores = search.score(with_domain(context, spread.domain), table_of([row.strategy]))
        faster = row.step_time_s / float(scores.step_time_s[0])
        gain = faster * filled.racks / spread.racks - 1
        if gain > max(WORTH, best[0]):
            text = (
                f"row {row.rank} on {spread.used} of each {rack} GPUs of {spread.racks:,} racks in place of "
                f"{filled.racks:,} whole ones: {faster - 1:.1%} faster, {gain:.1%} per rented GPU "
                f"(sbatch --segment={spread.segment // node})"
            )
            best = (gain, text)
    return (best[1],) if best[1] else ()


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
