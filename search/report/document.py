"""Reader of the leaderboard in the folder of a finished search."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forerun.search.answer.baseline import Baseline, MeasuredStep
from forerun.search.answer.explain.why import why
from forerun.search.board.folder import BOARD
from forerun.search.board.leaderboard import Leaderboard, SpaceCounts
from forerun.search.board.requested import ScoredChange
from forerun.search.board.row_reading import above_zero, row_from_json
from forerun.search.board.sweeps import read_search
from forerun.search.order.objectives import objective_named
from forerun.search.request.request import Request
from forerun.spaces.errors import RequestError
from forerun.spaces.fields import fields_from, finite


def read_run(folder: Path, search: int | None = None) -> Leaderboard:
    """Return the leaderboard in a folder of ``forerun search --out``.

    Other versions with this schema are read too (docs/formats.md): unknown fields are ignored and missing ones filled
    in. ``search``: number of a search in a sweep's folder.

    Raises
    ------
    RequestError
        The folder has no leaderboard, or a damaged one or of another schema.
    """
    data = read_search(folder, search)
    try:
        return _board(data)
    except (RequestError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RequestError(f"{folder / BOARD} is not a leaderboard that forerun wrote: {reason}") from None


def _board(data: Mapping[str, Any]) -> Leaderboard:
    request = dict(data["request"])
    Request.from_json(request)
    rows = tuple(map(row_from_json, data["leaderboard"]))
    if any(row.rank is None for row in rows):
        raise ValueError("a row has no rank")
    workers = str(request.pop("workers", "in this process"))
    for name in ("model_name", "cluster_name", "framework", "precision", "objective"):
        request[name] = str(request[name])
    if rows and rows[0].facts is None:
        for name in ("global_batch", "seq_len"):
            request[name] = int(request[name])
    objective_named(request["objective"])
    # The first leaderboards do not contain the searched numbers of GPUs.
    request["gpu_counts"] = [int(count) for count in request.get("gpu_counts", sorted({row.gpus for row in rows}))]
    if not request["gpu_counts"]:
        raise ValueError("gpu_counts is empty")
    return Leaderboard(
        request=request,
        space=fields_from(SpaceCounts, data["space"]),
        rows=rows,
        why=str(data.get("why") or why(rows)),
        defaults=tuple(map(str, request.pop("defaults"))),
        remarks=tuple(map(str, request.pop("notes"))),
        elapsed_s=finite(data["elapsed_s"]),
        versions={str(name): str(version) for name, version in data["versions"].items()},
        workers=workers,
        families=tuple(map(row_from_json, data.get("families") or ())),
        baseline=None if data.get("baseline") is None else _baseline(data["baseline"]),
    )


def _baseline(data: Mapping[str, Any]) -> Baseline:
    return fields_from(
        Baseline,
        data,
        row=row_from_json(data["row"]),
        changes=tuple(
            fields_from(ScoredChange, change, names={"words": "change"}, row=row_from_json(change["row"]))
            for change in data["changes"]
        ),
        measured=None if data["measured"] is None else _measured(data["measured"]),
    )


def _measured(data: Mapping[str, Any]) -> MeasuredStep:
    return fields_from(MeasuredStep, data, step_time_s=above_zero(data, "step_time_s"))
