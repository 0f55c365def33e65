"""Which strategies the framework of a request can be told to run: those that one of its own formats has words for."""

from forerun.search.board.rows import NO_LAUNCH_MARK
from forerun.search.formats.launch_of import launch_of
from forerun.search.formats.own_yaml import FORMAT as OWN
from forerun.search.formats.table import writable
from forerun.search.request.request import Setting
from forerun.spaces.strategies import Strategy


def no_launch_mark(setting: Setting) -> str:
    """Return the mark of a row that no launch file of the framework can express."""
    return f"{NO_LAUNCH_MARK} for {setting.context.framework.name}"


def launchable(setting: Setting, strategy: Strategy) -> bool:
    """Whether a format of the framework can express a strategy; also where the framework has no format."""
    context = setting.context
    if not any(item.framework == context.framework.name for item in writable()):
        return True
    return launch_of(context, strategy, name=context.model.name)[0] != OWN.name
