"""Arguments and environment of a script."""

from collections.abc import Mapping
from dataclasses import dataclass, field

SCRIPTS = (".sh", ".sbatch", ".slurm", ".bash")
"""Endings of launch scripts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The start of a script: arguments, environment and scripts that it reads.

    Parameters
    ----------
    arguments
        Its arguments, in order.
    variables
        The environment; these override the script's own assignments.
    bare
        Whether it is known to start without arguments; otherwise missing arguments are unknown.
    scripts
        Texts by file name of scripts that it may read (``source models/x.sh``).
    """

    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    bare: bool = False
    scripts: Mapping[str, str] = field(default_factory=dict)


NOTHING = Given()
