"""``forerun search`` on a cluster whose groups of nodes differ."""

import argparse
import sys
from typing import TYPE_CHECKING

from forerun.search.cli.progress import Walk
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.board.leaderboard import Leaderboard
    from forerun.search.request.request import Setting

REFUSED = (
    "usd_per_hour",
    "trees",
    "refine",
    "baseline",
    "measured",
    "measure_next",
    "sampler",
    "time_limit",
    "stagnation",
    "start",
    "storage",
    "workers",
)
"""Flags of a search that plans on groups have no use for."""


def search_on_groups(args: argparse.Namespace, setting: "Setting") -> "Leaderboard":
    """Search on groups.

    Raises:
        RequestError: a flag says what groups do not have.
    """
    from forerun.search.groups import search_groups
    from forerun.search.groups.searching import EVALUATIONS

    for name in REFUSED:
        if getattr(args, name) not in (None, False, []):
            flag = "--" + name.replace("_", "-")
            raise RequestError(
                f"{flag} is for equal nodes, and the groups of {args.cluster} differ: their plans are dealt stage by "
                "stage and simulated event by event in this process"
            )
    named = [word.strip() for word in (args.per_stage or "layers").split(",") if word.strip()]
    evaluations = EVALUATIONS if args.evaluations is None else args.evaluations
    with Walk(sys.stderr) as walk:
        walk.started(evaluations)
        return search_groups(
            setting,
            per_stage=tuple(dict.fromkeys(["layers", *named])),
            evaluations=evaluations,
            played=lambda count: walk.advance(count, count),
        )
