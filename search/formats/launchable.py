"""Check that a format of the request's framework can express a strategy."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from forerun.search.board.rows import NO_LAUNCH_MARK, Row
from forerun.search.formats.express import express, launch_in
from forerun.search.formats.registry import FormatEntry, writers_of
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks.usual import GENERIC
from forerun.spaces.strategies import Context, Strategy


def launchable(context: Context, strategy: Strategy) -> bool:
    """Whether a format of the framework can express a strategy; True without formats."""
    writers = writers_of(context.framework)
    return not writers or any(_expresses(writer, context, strategy) for writer in writers)


def unlaunched(context: Any, *, chosen: bool) -> tuple[str, ...]:
    """Return a warning if no format of the framework supports the devices and the user has not ``chosen`` it."""
    if chosen or not isinstance(context, Context) or writers_of(context.framework):
        return ()
    profile, model, device = context.framework, context.model, context.cluster.device
    if profile.name == GENERIC:
        kind = "decoders" if model.decodes else "models that are no decoders"
        return (
            f"no framework of the catalogue trains {kind} on {device.title} ({device.vendor}): {model.name} is ranked "
            f"for {GENERIC}, which nothing launches",
        )
    return (
        f"forerun writes no launch files of {profile.name} ({profile.title}): its rows are exported as forerun's own",
    )


def none_launched(context: Any, rows: Sequence[Row[Any]]) -> tuple[str, ...]:
    """Return a warning if every row lacks a launch file, with the reason for the first row."""
    rows = [row for row in rows if row.facts is None and not row.tree]
    if not rows or not all(row.lacks_launch_file for row in rows):
        return ()
    writers = writers_of(context.framework)
    if not writers:
        return ()
    try:
        express(writers[0].load(), launch_in(context, rows[0].strategy, name=context.model.name), context)
    except RequestError as error:
        return (f"no row has a launch file of {context.framework.name}. {error}",)
    return ()


def _expresses(writer: FormatEntry, context: Context, strategy: Strategy) -> bool:
    try:
        express(writer.load(), launch_in(context, strategy, name=context.model.name), context)
    except RequestError:
        return False
    return True


def marked(context: Any, row: Row[Any]) -> Row[Any]:
    """Return a row, marked if no launch file of its framework can express it (a proper tree, or refused)."""
    if row.lacks_launch_file:
        return row
    if row.facts is not None or (not writers_of(context.framework) if row.tree else launchable(context, row.strategy)):
        return row
    return dataclasses.replace(row, marks=(*row.marks, f"{NO_LAUNCH_MARK} for {context.framework.name}"))
