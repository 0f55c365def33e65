"""Words of a command: ``--name value`` options, command lines inside words, and Slurm's options."""

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import zip_longest


def split_again(words: Sequence[str]) -> list[str]:
    """Return words after splitting those that contain command lines (``bash -c "... --flag 1"``).

    >>> split_again(["sh", "-c", "python run.py --tp 2", "a b"])
    ['sh', '-c', 'python', 'run.py', '--tp', '2', 'a b']
    >>> split_again(["--fsdp=full_shard auto_wrap"])
    ['--fsdp=full_shard auto_wrap']
    """
    result: list[str] = []
    for word in words:
        if re.search(r"\s--\w", word) or re.match(r"--[\w-]+\s", word):
            try:
                result += shlex.split(word)
            except ValueError:
                result += word.split()
        else:
            result.append(word)
    end = next((at for at, word in enumerate(result) if _REDIRECTION.match(word)), len(result))
    return result[:end]


_REDIRECTION = re.compile(r"(&|\d)?>{1,2}|\|$|;$")
"""Words that end the arguments of a command line inside a word (``eval "$CMD &> log"``)."""


def options(words: Sequence[str], *, kebab: bool = True) -> tuple[dict[str, str | bool], list[str]]:
    """Return ``--name value``, ``--name=value`` and ``--name`` by name, and remarks about names given twice.

    Names are spelled with dashes (``kebab``) or with underscores; several values are joined by blanks.
    """
    flags: dict[str, str | bool] = {}
    remarks: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if _OPEN.fullmatch(word) and not re.match("-", words[at - 2] if at > 1 else ""):
            remarks.append(_left_out(word))
        if not re.match(r"--\w", word):
            continue
        name, separator, value = word[2:].partition("=")
        name = name.replace("_", "-") if kebab else name.replace("-", "_")
        values = [value] if separator else []
        while at < len(words) and not separator and not re.match(r"--?[A-Za-z]", words[at]):
            values.append(words[at])
            at += 1
        while len(values) > 1 and _OPEN.fullmatch(values[-1]):
            remarks.append(_left_out(values.pop()))
        result = " ".join(values) if values else True
        if name in flags and flags[name] != result:
            remarks.append(f"--{name} is given twice; the last one counts")
        flags[name] = result
    return flags, remarks


_OPEN = re.compile(r"\$(?:\w+|\{\w+(?:\[[@*]\])?\}|\([^\s(]*…\))")
"""An unassigned variable, or a substitution that only a run can evaluate."""


def _left_out(word: str) -> str:
    return f"{word} is not known; the arguments that it may add are left out"


PROGRAMS = ("megatron", "swift", "llamafactory-cli")
"""Programs that start themselves on all devices, with a subcommand as first argument."""


_STARTER = re.compile(r"(^|/)(gaudi_spawn|launch)\.py$")
"""Launchers that are Python files."""


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before the first program (``.py``) in a command, and the words after it."""
    if words and words[0] in PROGRAMS:
        return [], list(words[2:])
    for at, word in enumerate(words):
        if word.endswith(".py") and not _STARTER.search(word):
            return list(words[:at]), list(words[at + 1 :])
    return (list(words), []) if not words or not words[0].startswith("--") else ([], list(words))


def run_of(commands: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the command of a script whose program has the most arguments; () without arguments."""
    sized = [(len(options(split_command(command)[1])[0]), command) for command in commands]
    most, command = max(sized, key=lambda one: one[0], default=(0, ()))
    return command if most else ()


def runs_among(commands: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """Return the distinct arguments of programs that state a degree or a batch."""
    stated = dict.fromkeys(tuple(split_command(command)[1]) for command in commands)
    return [words for words in stated if any(map(_DECIDING.match, words))]


_DECIDING = re.compile(r"(--)?[\w.-]*(parallel|batch)[-_](size|degree)\b")


def slurm_variables(sbatch: Sequence[str]) -> dict[str, str | list[str]]:
    """Return the variables that SLURM sets from ``#SBATCH`` lines."""
    flags = options(sbatch)[0]
    nodes = count(flags, "nodes") or short(sbatch, "-N")
    gpus = count(flags, "gpus") or short(sbatch, "-G")
    per_node = count(flags, "gpus-per-node", "gres") or (gpus // nodes if gpus and nodes else None)
    tasks = count(flags, "ntasks-per-node")
    total = count(flags, "ntasks") or short(sbatch, "-n") or (nodes * tasks if nodes and tasks else None)
    counts = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_GPUS_PER_NODE": per_node, "SLURM_GPUS": gpus}
    counts |= {"SLURM_GPUS_ON_NODE": per_node, "SLURM_NTASKS_PER_NODE": tasks, "SLURM_TASKS_PER_NODE": tasks}
    counts |= {"SLURM_NTASKS": total, "SLURM_NPROCS": total}
    return {name: str(count) for name, count in counts.items() if count is not None}


def count(flags: Mapping[str, str | bool], *names: str) -> int | None:
    """Return the number at the end of the first option that ends in a number (``--gres=gpu:8``), or None."""
    for name in names:
        if match := re.search(r"(\d{1,7})$", str(flags.get(name, ""))):
            return int(match[1]) or None
    return None


def short(words: Sequence[str], flag: str) -> int | None:
    """Return the number after a short flag (``-N 4``, ``-N4``); None without one."""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        number = after if word == flag else word.removeprefix(flag) if word.startswith(flag) else ""
        if number.isdecimal():
            return int(number)
    return None
