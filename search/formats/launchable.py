"""Which strategies the framework of a request can be told to run: those that one of its own formats has words for."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from forerun.search.board.rows import NO_LAUNCH_MARK, Row
from forerun.search.formats.express import express, launch_in
from forerun.search.formats.of_framework import Writer, writers_of
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy

BEHIND = 0.03
"""What a strategy that no launch file can express must gain to stand before one that can be started as it is. Measured
order agrees with gaps of 3 % three times out of four, and a launcher would have to be changed for it."""


def launchable(context: Context, strategy: Strategy) -> bool:
    """Whether a format of the framework can express a strategy; also where the framework has no format."""
    writers = writers_of(context.framework)
    # Any will do: the last of the table write flags of a script, in a fraction of the time of the first ones' YAML.
    return not writers or any(_expresses(writer, context, strategy) for writer in reversed(writers))


def _expresses(writer: Writer, context: Context, strategy: Strategy) -> bool:
    try:
        express(writer.load(), launch_in(context, strategy, name=context.model.name), context)
    except RequestError:
        return False
    return True


def marked(context: Any, row: Row[Any]) -> Row[Any]:
    """Return a row with its mark where no launch file of the framework can express it: that of a tree which is no flat
    strategy, or one that its formats refuse."""
    if _lacks(row):
        return row
    if row.facts is not None or (not writers_of(context.framework) if row.tree else launchable(context, row.strategy)):
        return row
    return dataclasses.replace(row, marks=(*row.marks, f"{NO_LAUNCH_MARK} for {context.framework.name}"))


def launchable_first(rows: Sequence[Row[Any]]) -> list[Row[Any]]:
    """Return marked rows, best first, with those that lack a launch file behind those that have one and take little
    longer."""
    found = list(rows)
    for place in reversed(range(len(found))):
        lacking = found[place]
        if not _lacks(lacking):
            continue
        longest = (1 + BEHIND) * lacking.gpus * lacking.step_time_s
        while place + 1 < len(found) and not _lacks(found[place + 1]):
            after = found[place + 1]
            if after.gpus * after.step_time_s > longest:
                break
            found[place], found[place + 1] = after, lacking
            place += 1
    return found


def _lacks(row: Row[Any]) -> bool:
    return any(mark.startswith(NO_LAUNCH_MARK) for mark in row.marks)
