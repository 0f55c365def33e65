"""The launchers by name."""

from collections.abc import Callable, Mapping, Sequence

from forerun.search.tune.launchers.contract import RunLauncher
from forerun.search.tune.launchers.dry import DryLauncher
from forerun.search.tune.launchers.processes import CommandLauncher, ProcessLauncher
from forerun.search.tune.launchers.ray_actors import RayLauncher
from forerun.search.tune.launchers.slurm import SlurmLauncher
from forerun.spaces.errors import RequestError, unknown

LAUNCHERS: Mapping[str, Callable[[str, bool], RunLauncher]] = {
    "local": lambda words, timed: ProcessLauncher(),
    "slurm": lambda words, timed: SlurmLauncher(timed=timed),
    "ray": lambda words, timed: RayLauncher(words),
    "command": lambda words, timed: CommandLauncher(words),
    "dry": lambda words, timed: DryLauncher(),
}
"""Factories of launchers by name; arguments: the following words, and whether the user states a time limit for jobs."""
WITH_WORDS = ("ray", "command")
"""Names of launchers with further words."""


def launcher_named(words: Sequence[str], *, timed: bool = False) -> RunLauncher:
    """Return a launcher.

    Parameters
    ----------
    words
        Its name; after "command" a template, after "ray" an optional address.
    timed
        Whether the user states a time limit for jobs.

    Raises
    ------
    RequestError
        There is no such launcher, or words are missing or too many.
    """
    name, *more = words
    if name not in LAUNCHERS:
        raise unknown("launcher", name, LAUNCHERS)
    if more and name not in WITH_WORDS:
        raise RequestError(f"--launcher {name} takes no further words, but got {' '.join(more)}")
    return LAUNCHERS[name](" ".join(more), timed)
