"""What a launch script starts: bash runs it with a stand-in for torchrun that prints its arguments."""

import os
import subprocess
from pathlib import Path

_STAND_IN = '#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done\nprintf "%s\\0" "=environment"\nenv -0\n'


def started(files: dict[str, str], folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of the program that ``launch.sh`` starts, after the program itself, and the environment that
    it starts in.

    Raises:
        CalledProcessError: bash refuses the script.
    """
    for name, text in files.items():
        (folder / name).write_text(text)
    stand_in = folder / "bin" / "torchrun"
    stand_in.parent.mkdir(exist_ok=True)
    stand_in.write_text(_STAND_IN)
    stand_in.chmod(0o755)
    given = {
        "PATH": f"{stand_in.parent}:{os.environ['PATH']}",
        "MASTER_ADDR": "localhost",
        "NODE_RANK": "0",
        "RECIPE": "r",
    }
    told = subprocess.run(["bash", "launch.sh"], cwd=folder, env=given, check=True, capture_output=True, text=True)
    words = told.stdout.split("\0")
    cut = words.index("=environment")
    program = next(place for place, word in enumerate(words) if word.endswith(".py"))
    variables = dict(word.split("=", 1) for word in words[cut + 1 :] if "=" in word)
    return words[program + 1 : cut], variables


def options(words: list[str]) -> dict[str, list[str]]:
    """Return options with dashes by their names with underscores, each with its values.

    Raises:
        ValueError: a value comes before any option, or an option comes twice.
    """
    found: dict[str, list[str]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            if name in found:
                raise ValueError(f"{word} is given twice")
            found[name] = []
        elif not name:
            raise ValueError(f"{word} belongs to no option")
        else:
            found[name].append(word)
    return found
