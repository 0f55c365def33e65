"""Note on rows that are faster on parts of more racks, because complete racks cut their groups."""

from collections.abc import Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import Row
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import table_of
from forerun.spaces.strategies.racks import rack_devices, rack_use, spread_use, with_domain

WORTH = 0.01
"""Least gain per rented device of a proposed placement."""
ROWS = 10
"""Number of rows checked."""


def racks_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the row that gains most from segments with idle devices in each rack.

    There is none if the gain does not pay for the further racks.
    """
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
