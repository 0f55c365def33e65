"""The launch files of a strategy of a request, in the format of its own framework where that can express it."""

from forerun.search.formats.contract import Files, Format, Launch
from forerun.search.formats.exporting import express
from forerun.search.formats.own_yaml import FORMAT as OWN
from forerun.search.formats.table import format_named, writable
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.strategies import Context, Strategy


def formats_of(framework: FrameworkProfile) -> tuple[Format, ...]:
    """Return the formats of a framework, or of one that it is like."""
    return tuple(item for item in writable() if {item.framework, *item.also} & {*framework.lineage})


def launch_of(context: Context, strategy: Strategy, *, name: str, format_name: str | None = None) -> tuple[str, Files]:
    """Return the name of a format and the files that start ``strategy`` in it: the first of the request's framework
    that can express it, then of those that write it without being its own, else forerun's own.

    ``name`` is free text for the files; ``format_name`` asks for one format.

    Raises:
        RequestError: the format asked for is unknown or cannot express the strategy.
    """
    launch = Launch(
        strategy=strategy,
        model=context.model,
        workload=context.workload,
        devices_per_node=context.cluster.devices_per_node,
        name=name,
    )
    if format_name is not None:
        item = format_named(format_name)
        return item.name, express(item, launch, context)
    for item in sorted(formats_of(context.framework), key=lambda item: item.framework not in context.framework.lineage):
        try:
            return item.name, express(item, launch, context)
        except RequestError:
            continue
    return OWN.name, express(OWN, launch, context)
