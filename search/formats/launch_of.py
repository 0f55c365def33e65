"""The launch files of a strategy of a request, in the format of its own framework where that can express it."""

from forerun.search.formats.contract import Files
from forerun.search.formats.express import express, launch_in
from forerun.search.formats.of_framework import formats_of
from forerun.search.formats.own_yaml import FORMAT as OWN
from forerun.search.formats.table import format_named
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy


def launch_of(context: Context, strategy: Strategy, *, name: str, format_name: str | None = None) -> tuple[str, Files]:
    """Return the name of a format and the files that start ``strategy`` in it: the first of the request's framework
    that can express it, then of those that write it without being its own, else forerun's own.

    ``name`` is free text for the files; ``format_name`` asks for one format.

    Raises:
        RequestError: the format asked for is unknown or cannot express the strategy.
    """
    launch = launch_in(context, strategy, name=name)
    if format_name is not None:
        item = format_named(format_name)
        return item.name, express(item, launch, context)
    for item in sorted(formats_of(context.framework), key=lambda item: item.framework not in context.framework.lineage):
        try:
            return item.name, express(item, launch, context)
        except RequestError:
            continue
    return OWN.name, express(OWN, launch, context)
