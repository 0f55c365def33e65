"""Options of launch files: folder, steps, queue and platform."""

import re
from dataclasses import dataclass

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.escaping import quoted

EXAMPLES = {"partition": "gpu", "account": "project", "time": "04:00:00", "container": "nvcr.io#nvidia/nemo:25.09"}
PLATFORMS = ("slurm", "skypilot", "kubernetes", "ray")
"""Software that starts a launch on its nodes."""
_NAME = r"[\w.+@/-]+(,[\w.+@/-]+)*"
_TIME = r"\d+(:\d{1,2}){0,2}|\d+-\d{1,2}(:\d{1,2}){0,2}"
_IMAGE = r"[\w.+@:/#~-]+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The folder of a launch, its length and its options of Slurm; None for unset options.

    ``folder``: absolute path of the launch files. ``steps``: steps of the training, if the format has them.
    ``trainer``: program and arguments, as shell text, that replace the framework's program and get its arguments
    (empty: the framework's program). ``container``: container image for pyxis (a path, or ``registry#name:tag``).
    ``platform``: one of ``PLATFORMS``, the software that starts the launch on its nodes.
    """

    folder: str | None = None
    steps: int = 100
    trainer: str = ""
    partition: str | None = None
    account: str | None = None
    time: str | None = None
    container: str | None = None
    platform: str = "slurm"

    def __post_init__(self) -> None:
        if self.platform not in PLATFORMS:
            raise unknown("platform", self.platform, PLATFORMS)
        forms = {"partition": _NAME, "account": _NAME, "time": _TIME, "container": _IMAGE}
        for name, form in forms.items():
            value = getattr(self, name)
            if value is not None and not re.fullmatch(form, value, re.ASCII):
                raise RequestError(f"--{name} is written like {EXAMPLES[name]}, but got {quoted(value)}")

    @property
    def queued(self) -> bool:
        """Whether any option of the queue is set."""
        return any((self.partition, self.account, self.time, self.container))

    @property
    def directives(self) -> list[str]:
        """Options of ``#SBATCH`` lines."""
        options = {"partition": self.partition, "account": self.account, "time": self.time}
        return [f"--{name}={value}" for name, value in options.items() if value is not None]


NO_JOB = Job()
