"""The flag ``--trees`` of ``search``: its checks, output and files."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.search.cli.sampling import plans_device_counts
from forerun.spaces.errors import RequestError
from forerun.spaces.units import format_seconds

if TYPE_CHECKING:
    from rich.text import Text

    from forerun.search.board.leaderboard import Leaderboard
    from forerun.search.board.requested import TreeRows
    from forerun.search.request.model_kind import AnyContext
    from forerun.search.request.setting import Setting
    from forerun.search.workers import Choice

FOLDER = "trees"
"""Folder of trees below --out, with files ``1.yaml``, ``2.yaml``, …"""
REFINED = 20
"""Default number of simulated rows without --refine, for comparison with trees."""


def check_varying(args: argparse.Namespace) -> None:
    """Set the number of simulated rows for comparison with trees, and refuse unsupported objectives."""
    if args.trees is None and not plans_device_counts(args):
        return
    from forerun.search.explore.trees.descents import check_objective

    check_objective(args.objective or "throughput")
    if args.measure_next is not None:
        flag = "--per-stage devices" if args.trees is None else "--trees"
        raise RequestError(f"--measure-next proposes runs of the flat rows; leave it out with {flag}")
    if args.refine is None:
        args.refine = REFINED


def varied(
    args: argparse.Namespace, setting: "Setting[AnyContext]", board: "Leaderboard", workers: "Choice"
) -> "Leaderboard":
    """Return a board with the requested trees and plans."""
    from forerun.search.cli.progress import show_progress
    from forerun.search.request.setting import has_transformer, of_operator_graph

    if plans_device_counts(args):
        from forerun.search.answer.trees import with_plans

        board = with_plans(board, setting, show_progress)
    if args.trees is None:
        return board
    if not has_transformer(setting):
        from forerun.search.answer.trees import with_mixtures

        return with_mixtures(board, of_operator_graph(setting), args.trees, show_progress)
    from forerun.search.answer.trees import with_trees

    return with_trees(board, setting, args.trees, workers, show_progress)


def write_trees(folder: Path, board: "Leaderboard") -> None:
    """Write every tree as a file for ``simulate --tree``."""
    if board.trees is None or not board.trees.rows:
        return
    from forerun.spaces.files import write_text

    (folder / FOLDER).mkdir(exist_ok=True)
    for number, row in enumerate(board.trees.rows, start=1):
        write_text(folder / FOLDER / f"{number}.yaml", row.yaml)


def tree_lines(trees: "TreeRows") -> "list[Text]":
    """Return a paragraph for each tree."""
    from rich.text import Text

    from forerun.search.board.rows import NO_LAUNCH_MARK

    near = f" near {trees.starts} strategies" if trees.starts else ""
    looked = f"{trees.judged:,} evaluated{near}, {trees.simulated:,} simulated"
    if not trees.rows:
        return [Text(f"strategy trees: none is faster than its flat strategy and the last row ({looked})")]
    best = f"the best is {trees.gain:.1%} faster than #1" if trees.gain > 0 else "none is faster than #1"
    lines = [Text(f"strategy trees: {best} ({looked})", style="bold")]
    for number, each in enumerate(trees.rows, start=1):
        row = each.row
        gain = (
            "its flat strategy does not fit" if each.gain is None else f"{each.gain:.1%} faster than its flat strategy"
        )
        lines.append(
            Text(
                f"  {number}. at rank {row.rank}: step {format_seconds(row.step_time_s)}, "
                f"{row.peak_memory_gib:.1f} of {row.memory_limit_gib:.1f} GiB, {gain}"
            )
        )
        lines.append(Text(f"     {each.start}"))
        lines.append(Text(f"     {'; '.join(each.changes)}"))
        marks = [mark for mark in row.marks if mark.startswith(NO_LAUNCH_MARK)]
        if marks or row.risk_text:
            lines.append(Text(f"     ! {', '.join(filter(None, (*marks, row.risk_text)))}", style="yellow"))
    flags = " and the --with that they name" if any("with=" in each.start for each in trees.rows) else ""
    hint = f"--out DIR writes them as DIR/trees/N.yaml for simulate --tree{flags}; --json contains them"
    return [*lines, Text(hint, style="dim")]
