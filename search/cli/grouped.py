"""``forerun search`` on a cluster whose groups of nodes differ."""

import argparse
from typing import TYPE_CHECKING

from forerun.search.cli.flags.declaration import Answer
from forerun.search.cli.flags.parsing import refuse_unserved
from forerun.search.cli.progress import show_progress
from forerun.search.cli.sampling import plans_unlike
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.board.leaderboard import Leaderboard
    from forerun.search.request.setting import Setting


def search_on_groups(args: argparse.Namespace, setting: "Setting") -> "Leaderboard":
    """Search strategies on groups of nodes that differ, and return the leaderboard.

    Raises:
        RequestError: a flag is not supported for groups.
    """
    from forerun.search.answer.searches import search_groups
    from forerun.search.explore.groups.simulated_plans import EVALUATIONS

    refuse_unserved(
        args,
        Answer.GROUPS,
        f"is for equal nodes, and the groups of {args.cluster} differ: layers go to stages by the pace of every "
        "group and are simulated event by event in this process",
    )
    if plans_unlike(args):
        raise RequestError(
            f"stages of unlike numbers of devices are planned on equal nodes, and the groups of {args.cluster} differ; "
            "leave devices out of --per-stage"
        )
    named = [word.strip() for word in (args.per_stage or "layers").split(",") if word.strip()]
    evaluations = EVALUATIONS if args.evaluations is None else args.evaluations
    return search_groups(
        setting,
        per_stage=tuple(dict.fromkeys(["layers", *named])),
        evaluations=evaluations,
        played=lambda count: show_progress("simulating plans", count, evaluations),
    )
