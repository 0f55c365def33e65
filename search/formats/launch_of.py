"""The launch files of a strategy of a request, preferably in a format of its framework."""

import dataclasses
from pathlib import Path

from forerun.search.formats.contract import Files, Format
from forerun.search.formats.express import express, launch_in
from forerun.search.formats.job import Job
from forerun.search.formats.own_yaml import FORMAT as OWN
from forerun.search.formats.registry import formats_of
from forerun.search.formats.table import format_named
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy


def launch_of(
    context: Context,
    strategy: Strategy,
    *,
    name: str,
    format_name: str | None = None,
    folder: Path | None = None,
    job: Job | None = None,
) -> tuple[str, Files]:
    """Return the name of a format and its files for starting ``strategy``.

    The format is the first of the framework that can express the strategy, then one of another framework that writes
    it, else forerun's own. ``name`` is free text for the files; ``format_name``: requested format. ``folder``: path of
    the files, extended by the name of the format (``01-megatron-lm``). ``job``: replaces ``folder``, with the final
    folder and further options.

    Raises
    ------
    RequestError
        The requested format is unknown or cannot express the strategy.
    """
    launch = launch_in(context, strategy, name=name)

    def files(item: Format) -> tuple[str, Files]:
        place = None if folder is None else f"{folder.absolute()}-{item.name}"
        return item.name, express(item, dataclasses.replace(launch, job=job or Job(folder=place)), context)

    if format_name is not None:
        return files(format_named(format_name))
    for item in formats_of(context.framework):
        try:
            return files(item)
        except RequestError:
            continue
    return files(OWN)
