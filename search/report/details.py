"""Resolved request of a leaderboard, details of its rows and their launch files, for a page."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.search.answer.explain.explain import MEANING, MEMORY_MEANING
from forerun.search.board.leaderboard import Leaderboard
from forerun.search.board.rows import Row
from forerun.search.formats.launch_of import launch_of
from forerun.search.report.bars import TIME_SLOTS
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, of_transformer
from forerun.spaces.errors import ForerunError


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """Today's ``setting`` of a leaderboard's request, without limits and number of GPUs.

    It is None if the model or cluster named in ``missing`` is unavailable.
    """

    setting: Setting[AnyContext] | None
    missing: str = ""


def resolved_request(board: Leaderboard) -> ResolvedRequest:
    """Resolve the request of a leaderboard, once for all sections of a page."""
    try:
        request = Request.from_json(board.request)
        bare = dataclasses.replace(request, gpus=None, usd_per_hour=None, train_within_s=None, train_usd=None)
        return ResolvedRequest(setting=resolve(bare, groups=True))
    except (ForerunError, KeyError, TypeError, ValueError) as error:
        return ResolvedRequest(setting=None, missing=str(error))


def details_data(rows: Sequence[Row], launches: Sequence[str]) -> dict[str, Any]:
    """Return the parts of every row as plain data for the page's script.

    ``step`` and ``memory`` have the names and meanings of the parts, ``slots`` the colours of the step's parts.
    ``rows`` have the seconds and GiB of the parts in this order with three digits; ``launches`` are the launch files of
    the first rows.
    """
    return {
        "step": _parts(rows[0].breakdown_s, MEANING),
        "memory": _parts(rows[0].memory_gib, MEMORY_MEANING),
        "slots": [TIME_SLOTS[name] for name in rows[0].breakdown_s],
        "rows": [[_digits(row.breakdown_s), _digits(row.memory_gib)] for row in rows],
        "launches": list(launches),
    }


def _parts(parts: Mapping[str, float], meanings: Mapping[str, str]) -> list[list[str]]:
    return [[name, meanings.get(name, "")] for name in parts]


def _digits(parts: Mapping[str, float]) -> list[float]:
    return [0 if value == 0 else float(f"{value:.3g}") for value in parts.values()]


MOST = 10
"""Rows whose launch files are part of the page."""


def launch_texts(board: Leaderboard, resolved: ResolvedRequest) -> list[str]:
    """Return the launch files of the best rows, "" for an inexpressible row; no texts if the request is unavailable."""
    if resolved.setting is None or board.rows[0].facts is not None:
        return []
    context, texts = of_transformer(resolved.setting).context, []
    for row in board.rows[:MOST]:
        try:
            name, files = launch_of(
                context.in_precision(row.precision), row.strategy, name=f"{context.model.name} rank {row.rank}"
            )
        except ForerunError:
            texts.append("")
            continue
        texts.append("\n".join(f"# {name}: {file}\n{text}" for file, text in files.items()))
    return texts
