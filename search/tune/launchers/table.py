"""The launchers by the word that names them."""

from collections.abc import Callable, Mapping

from forerun.search.tune.launchers.contract import Launcher
from forerun.search.tune.launchers.dry import DryLauncher
from forerun.search.tune.launchers.processes import CommandLauncher, ProcessLauncher
from forerun.spaces.errors import RequestError, unknown

LAUNCHERS: Mapping[str, Callable[[], Launcher]] = {"local": ProcessLauncher, "dry": DryLauncher}
"""Launchers that take no more than their name."""
COMMAND = "command"


def launcher_named(words: list[str]) -> Launcher:
    """Return the launcher that words name: ``local``, ``dry``, or ``command`` with a template.

    Raises:
        RequestError: there is no such launcher, or words are missing or too many.
    """
    name, *more = words
    if name == COMMAND:
        return CommandLauncher(" ".join(more))
    if name not in LAUNCHERS:
        raise unknown("launcher", name, (*LAUNCHERS, COMMAND))
    if more:
        raise RequestError(f"--launcher {name} takes no further words, but got {' '.join(more)}")
    return LAUNCHERS[name]()
