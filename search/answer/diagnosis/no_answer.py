"""Errors for searches without rows, with the reason for an operator graph."""

from typing import TYPE_CHECKING, Any

from forerun.spaces.errors import InfeasibleError
from forerun.spaces.opgraph.batch import PerDevice

if TYPE_CHECKING:
    from forerun.search.board.found import Found
    from forerun.search.request.setting import Setting
    from forerun.simulator.opgraph import GraphContext
    from forerun.spaces.opgraph.split import Split


class NoAnswer(InfeasibleError):
    """A search has no rows; ``document`` is the answer as JSON, with the diagnosis under ``infeasible``."""

    def __init__(self, text: str, document: dict[str, Any], infeasible: dict[str, Any]) -> None:
        super().__init__(text)
        self.document = {**document, "infeasible": infeasible}


def no_split_fits(setting: "Setting[GraphContext]", found: "Found", document: dict[str, Any]) -> NoAnswer:
    """Return the error for a space without a legal or feasible split, with the smallest helpful change."""
    model, batch = setting.context.model.name, setting.request.global_batch
    row = found.closest
    if row is None:
        counted = ", ".join(f"{reason} {count}" for reason, count in sorted(found.space.rejected.items()))
        text = f"no split of {model} is legal here (by reason: {counted})"
        return NoAnswer(text, {**document, "message": text}, {"message": text, "closest": None})
    split: Split = row.strategy
    if row.graph.global_batch // split.replicas // split.segments > 1:
        change = f"use a smaller batch than {batch}{'' if isinstance(batch, PerDevice) else ' or more GPUs'}"
    else:
        change = "one sample at a time is too much: use more GPUs, or GPUs with more memory"
    text = (
        f"nothing fits: the leanest split, {split}, needs {row.peak_memory_gib:.1f} GiB of the "
        f"{row.memory_limit_gib:.1f} GiB usable; {change}"
    )
    return NoAnswer(text, {**document, "message": text}, {"message": text, "closest": row.to_json()})
