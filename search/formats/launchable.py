"""Which strategies the framework of a request can be told to run: those that one of its own formats has words for."""

import dataclasses
from typing import Any

from forerun.search.board.rows import NO_LAUNCH_MARK, Row
from forerun.search.formats.launch_of import formats_of, launch_of
from forerun.search.formats.own_yaml import FORMAT as OWN
from forerun.spaces.strategies import Context, Strategy


def launchable(context: Context, strategy: Strategy) -> bool:
    """Whether a format of the framework can express a strategy; also where the framework has no format."""
    if not formats_of(context.framework):
        return True
    return launch_of(context, strategy, name=context.model.name)[0] != OWN.name


def marked(context: Any, row: Row[Any]) -> Row[Any]:
    """Return a row with its mark where no launch file of the framework can express it."""
    if row.tree or row.facts is not None or launchable(context, row.strategy):
        return row
    return dataclasses.replace(row, marks=(*row.marks, f"{NO_LAUNCH_MARK} for {context.framework.name}"))
