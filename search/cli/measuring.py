"""Flags of ``search`` that propose runs to measure, and their files."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.board.leaderboard import Leaderboard
    from forerun.search.request.model_kind import AnyContext
    from forerun.search.request.setting import Setting


def check_measuring(args: argparse.Namespace) -> None:
    """Refuse contradictory flags before the search.

    Raises:
        RequestError: a format without runs, an unknown format, or several objectives at once.
    """
    if args.measure_next is None:
        if args.format is not None:
            raise RequestError("--format is for the runs of --measure-next; name both")
        return
    if "," in (args.objective or ""):
        raise RequestError(f"--measure-next needs a single objective, but got {args.objective}")
    if args.format is not None:
        from forerun.search.formats.table import format_named

        format_named(args.format)


def with_proposals(
    args: argparse.Namespace, setting: "Setting[AnyContext]", board: "Leaderboard", shown: int
) -> "Leaderboard":
    """Return the board with the runs to measure next, and the requested number of rows."""
    from forerun.search.request.setting import of_transformer
    from forerun.search.tune.proposals import next_runs

    found = next_runs(of_transformer(setting).context, board.rows, args.measure_next, rule=args.measure_for)
    return replace(board, rows=board.rows[:shown], measure_next=found)


def write_proposals(args: argparse.Namespace, setting: "Setting[AnyContext]", board: "Leaderboard") -> None:
    """Write the launch files of the runs to measure, and the table for their results, below ``--out``."""
    from forerun.search.request.setting import of_transformer
    from forerun.search.tune.proposals import launches, results_table
    from forerun.spaces.files import write_text

    found = board.measure_next
    if found is None:
        return
    folder = args.out / "measure"
    for place, files in launches(of_transformer(setting), found, args.format, folder=folder):
        place.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            write_text(place / file, text)
    write_text(folder / "runs.csv", results_table(of_transformer(setting), found))
