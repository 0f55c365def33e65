"""Note on the largest imbalance of experts at which the best strategy fits."""

import dataclasses
import re
from collections.abc import Sequence

from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.board.rows import Row
from forerun.search.request.setting import Setting
from forerun.simulator.core.score import fits
from forerun.simulator.memory.risk import risking
from forerun.spaces.strategies import Context, Strategy, parse_strategy, table_of

WORTH_SAYING = 2.0
"""Largest imbalance checked: a strategy that fits with twice the even share is not near its limit."""
_HALVINGS = 8


def uneven_note(setting: Setting, rows: Sequence[Row], search: NoteSearch) -> tuple[str, ...]:
    """Return a note on the imbalance of experts at which the first row no longer fits.

    There is none if experts are not divided among devices, the user states the imbalance, or it is large.
    """
    if not setting.context.moe or setting.request.moe_imbalance is not None:
        return ()
    row = rows[0]
    if not isinstance(row.strategy, Strategy) or row.strategy.ep == 1:
        return ()
    most = largest_imbalance(risking(setting.context, None), row.strategy)  # all memory, for any requested risk
    if most >= WORTH_SAYING:
        return ()
    return (
        "experts count as evenly loaded: row 1 runs out of memory once its busiest GPU gets "
        f"{most:.2f} times its share of tokens in all layers (--moe-imbalance)",
    )


def largest_imbalance(context: Context, strategy: Strategy) -> float:
    """Return the largest imbalance of experts at which a strategy fits, at most ``WORTH_SAYING``."""
    table = table_of([strategy])

    def runs(imbalance: float) -> bool:
        workload = dataclasses.replace(context.workload, moe_imbalance=imbalance)
        return bool(fits(dataclasses.replace(context, workload=workload), table)[0])

    low, high = 1.0, WORTH_SAYING
    if runs(high):
        return high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if runs(middle) else (low, middle)
    return low


def whole_experts_note(context: Context, text: str) -> tuple[str, ...]:
    """Warn of a handwritten strategy with undivided experts on tensor ranks, unlike Megatron-LM's default.

    There is no warning if the strategy states ``etp``, or the framework has another default.
    """
    strategy = parse_strategy(text)
    if not context.moe or strategy.tp == 1 or strategy.etp > 1 or re.search(r"\betp=?1\b", text):
        return ()
    if not {"megatron-lm", "nemo"} & {*context.framework.lineage}:
        return ()
    return (
        "etp is not stated, so every tensor rank holds whole experts (etp1); Megatron-LM's default is etp=tp: add "
        f"etp{strategy.tp} if your run has no --expert-tensor-parallel-size",
    )
