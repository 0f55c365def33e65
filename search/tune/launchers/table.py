"""The launchers by the word that names them."""

from collections.abc import Callable, Mapping

from forerun.search.tune.launchers.contract import RunLauncher
from forerun.search.tune.launchers.dry import DryLauncher
from forerun.search.tune.launchers.processes import CommandLauncher, ProcessLauncher
from forerun.search.tune.launchers.slurm import SlurmLauncher
from forerun.spaces.errors import RequestError, unknown

LAUNCHERS: Mapping[str, Callable[[], RunLauncher]] = {
    "local": ProcessLauncher,
    "slurm": SlurmLauncher,
    "dry": DryLauncher,
}
"""Launchers that take no more than their name."""
COMMAND = "command"


def launcher_named(words: list[str], *, timed: bool = False) -> RunLauncher:
    """Return the launcher that words name: ``local``, ``slurm``, ``dry``, or ``command`` with a template.

    ``timed``: the user states a time limit for jobs.

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
    return SlurmLauncher(timed=timed) if name == SlurmLauncher.name else LAUNCHERS[name]()
