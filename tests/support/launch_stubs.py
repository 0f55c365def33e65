"""Launch files started by bash with stand-ins for Slurm, launchers and Python that record how they were called."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LAUNCHERS = ("torchrun", "deepspeed", "accelerate", "llamafactory-cli", "python", "python3")
HOSTS = tuple(f"host{node}" for node in range(4))

_RECORD = r"""#!/bin/bash
exec > "$RECORDS/$(basename "$0").$BASHPID"
printf '%s\0' "$PWD" "$0" "$@" "=environment"
env -0
printf '%s\0' "=hosts"
while [ $# -gt 0 ]; do
    if [ "$1" = --hostfile ]; then cat "$2"; fi
    shift
done
if [ -n "$DLTS_HOSTFILE" ]; then cat "$DLTS_HOSTFILE"; fi
"""
_SRUN = r"""#!/bin/bash
printf '%s\0' "$@" > "$RECORDS/srun"
while [[ "$1" == --* ]]; do shift; done
for ((node = 0; node < SLURM_NNODES; node++)); do
    SLURM_NODEID=$node SLURM_PROCID=$node "$@" || exit $?
done
"""
_SCONTROL = r"""#!/bin/bash
if [ "$2" = hostnames ]; then printf '%s\n' ${3//,/ }; fi
if [ "$2" = job ]; then echo "JobId=$4 JobName=x ${SUBMITTED:+Command=$SUBMITTED }WorkDir=/"; fi
"""


@dataclass(frozen=True, slots=True)
class Started:
    """One call of a launcher: where, with which words and environment, and the lines of its host file."""

    cwd: Path
    words: tuple[str, ...]
    environment: Mapping[str, str]
    hosts: tuple[str, ...]

    @property
    def launcher(self) -> str:
        """Name of the launcher."""
        return Path(self.words[0]).name

    def option(self, name: str) -> str:
        """Return the word after an option."""
        return self.words[self.words.index(name) + 1]


@dataclass(frozen=True, slots=True)
class Machine:
    """A folder with stand-ins, where launches are started from a directory of their own."""

    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir(parents=True)
        stubs = {**dict.fromkeys(LAUNCHERS, _RECORD), "srun": _SRUN, "scontrol": _SCONTROL}
        for name, text in stubs.items():
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "spool").mkdir()
        (self.folder / "elsewhere").mkdir()
        (self.folder / "records").mkdir()

    def run(self, script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a script with bash from another directory than its own."""
        environment = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "RECORDS": str(self.folder / "records"),
            **self.variables,
            **variables,
        }
        words = ["bash", str(script)]
        elsewhere = self.folder / "elsewhere"
        return subprocess.run(words, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False)

    def sbatch(self, script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a batch script as Slurm does: a copy of it, on the first node, from where it was submitted."""
        text = script.read_text()
        copy = self.folder / "spool" / "slurm_script"
        copy.write_text(text)
        match = re.search(r"^#SBATCH --nodes=(\d+)$", text, re.MULTILINE)
        assert match is not None
        slurm = {
            "SLURM_JOB_ID": "7",
            "SLURM_NNODES": match[1],
            "SLURM_JOB_NODELIST": ",".join(HOSTS[: int(match[1])]),
            "SLURM_SUBMIT_DIR": str(self.folder / "elsewhere"),
            "SUBMITTED": str(script),
        }
        return self.run(copy, **{**slurm, **variables})

    def started(self) -> list[Started]:
        """Return the calls of launchers, by node."""
        found = []
        for path in (self.folder / "records").iterdir():
            if path.name == "srun":
                continue
            cwd, *words = path.read_text().split("\0")
            environment, hosts = words.index("=environment"), words.index("=hosts")
            pairs = (word.split("=", 1) for word in words[environment + 1 : hosts] if "=" in word)
            lines = tuple("".join(words[hosts + 1 :]).splitlines())
            found.append(Started(Path(cwd), tuple(words[:environment]), dict(pairs), lines))
        return sorted(found, key=lambda one: one.environment.get("SLURM_NODEID", ""))

    def srun(self) -> list[str]:
        """Return the words that srun was started with."""
        return (self.folder / "records" / "srun").read_text().split("\0")[:-1]
