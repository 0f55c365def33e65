"""A launch script as the commands it would start, read and never run."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from forerun.search.formats.devices import World
from forerun.search.formats.shell_lexer import Piece, Word, lex
from forerun.search.formats.shell_words import Scope, expand_word
from forerun.spaces.errors import RequestError

SCRIPTS = (".sh", ".sbatch", ".slurm", ".bash")
"""Endings of launch scripts."""

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_DECLARE = ("export", "local", "readonly", "declare", "typeset")
_SBATCH = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a script says: its commands as words, its variables, its ``#SBATCH`` words, and what was left out."""

    commands: tuple[tuple[str, ...], ...]
    variables: Mapping[str, str | Sequence[str]]
    sbatch: tuple[str, ...]
    notes: tuple[str, ...]


def read_script(text: str, source: str) -> Script:
    """Read a shell script, or a bare list of arguments.

    Branches whose condition compares texts that the script assigns are decided; the others are left out, with a note.

    Raises:
        RequestError: quotes or brackets do not close, or variables grow without end.
    """
    if "\0" in text:
        raise RequestError(f"{source} is not a text file (it has null bytes)")
    return _Reader(source).read(text)


def _slurm_variables(sbatch: Sequence[str]) -> dict[str, str | list[str]]:
    """Return the variables that SLURM sets from ``#SBATCH`` lines."""
    found = options(sbatch)[0]
    nodes = _count(found, "nodes") or _short(sbatch, "-N")
    per_node = _count(found, "gpus-per-node", "gres") or _short(sbatch, "-G")
    tasks = _count(found, "ntasks-per-node")
    total = _count(found, "ntasks") or _short(sbatch, "-n") or (nodes * tasks if nodes and tasks else None)
    counts = {"SLURM_NNODES": nodes, "SLURM_JOB_NUM_NODES": nodes, "SLURM_GPUS_PER_NODE": per_node}
    counts |= {"SLURM_GPUS_ON_NODE": per_node, "SLURM_NTASKS_PER_NODE": tasks, "SLURM_TASKS_PER_NODE": tasks}
    counts |= {"SLURM_NTASKS": total, "SLURM_NPROCS": total}
    return {name: str(count) for name, count in counts.items() if count is not None}


class _Reader:
    """Follows a script command by command."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._scope = Scope()
        self._commands: list[tuple[str, ...]] = []
        self._notes: list[str] = []
        # One entry per open `if`: whether its current branch is read, whether one was taken, and the words of a
        # condition that is not complete yet.
        self._branches: list[list[bool]] = []
        self._condition: list[list[str]] | None = None

    def read(self, text: str) -> Script:
        self._scope.values |= _slurm_variables([word for match in _SBATCH.finditer(text) for word in match[1].split()])
        for line, command in lex(text, self._source):
            self._command(line, command)
        return Script(
            commands=tuple(self._commands),
            variables=dict(self._scope.values),
            sbatch=tuple(word for match in _SBATCH.finditer(text) for word in match[1].split()),
            notes=tuple(self._notes),
        )

    def _command(self, line: int, command: list[Word | str]) -> None:
        word = _plain(command[0])
        if word in ("if", "elif"):
            self._open(word)
            command = command[1:]
        elif word == "then":
            self._decide(line)
            command = command[1:]
        elif word == "else" and self._branches:
            self._branches[-1][0] = not self._branches[-1][1]
            command = command[1:]
        elif word == "fi" and self._branches:
            self._branches.pop()
            return
        if not command:
            return
        if self._condition is None and word in ("&&", "||"):
            return
        if self._condition is not None:
            self._condition.append(self._words(command))
        elif all(branch[0] for branch in self._branches):
            self._run(command)

    def _open(self, word: str) -> None:
        if word == "if":
            self._branches.append([True, False])
        self._condition = []

    def _decide(self, line: int) -> None:
        condition, self._condition = self._condition or [], None
        if not self._branches:
            return
        branch = self._branches[-1]
        if branch[1]:
            branch[0] = False
            return
        truth = _truth(condition)
        if truth is None and not all(outer[0] for outer in self._branches[:-1]):
            branch[0], branch[1] = False, True
        elif truth is None:
            shown = " ".join(word for words in condition for word in words)[:80]
            self._notes.append(f"line {line}: the condition {shown!r} cannot be decided; its branches are left out")
            branch[0], branch[1] = False, True
        else:
            branch[0] = branch[1] = truth

    def _run(self, command: list[Word | str]) -> None:
        rest = list(command)
        while rest and _plain(rest[0]) in _DECLARE:
            rest = rest[1:]
            while rest and (_plain(rest[0]) or "").startswith("-"):
                rest = rest[1:]
        while rest and (match := _assignment(rest[0])):
            rest = self._assign(match[1], bool(match[2]), rest)
        if rest:
            self._commands.append(tuple(self._words(rest)))

    def _assign(self, name: str, append: bool, command: list[Word | str]) -> list[Word | str]:
        """Set a variable and return what follows it."""
        first = command[0]
        assert isinstance(first, tuple)
        old = self._scope.values.get(name, "")
        if len(command) > 1 and command[1] == "(":
            end = command.index(")", 2)
            elements = self._words(command[2:end])
            if append:
                elements = [*([old] if isinstance(old, str) and old else old), *elements]
            self._scope.values[name] = elements
            return command[end + 1 :]
        head = first[0]
        tail = head.text[head.text.index("=") + 1 :]
        value = (Piece(text=tail, quoted=True, expand=True), *(_as_quoted(piece) for piece in first[1:]))
        text = "".join(expand_word(value, self._scope, self._source))
        if append and isinstance(old, list):
            self._scope.values[name] = [*old, text]
        else:
            self._scope.values[name] = f"{old}{text}" if append else text
        return command[1:]

    def _words(self, command: Sequence[Word | str]) -> list[str]:
        words: list[str] = []
        for word in command:
            words += [word] if isinstance(word, str) else expand_word(word, self._scope, self._source)
        return words


def _as_quoted(piece: Piece) -> Piece:
    """The right side of an assignment is not split at blanks."""
    return Piece(text=piece.text, quoted=True, expand=piece.expand)


def _plain(word: Word | str) -> str | None:
    if isinstance(word, str) or len(word) != 1 or word[0].quoted:
        return None
    return word[0].text


def _assignment(word: Word | str) -> re.Match[str] | None:
    if isinstance(word, str) or word[0].quoted or not word[0].expand:
        return None
    return _ASSIGN.match(word[0].text)


def _truth(commands: list[list[str]]) -> bool | None:
    """Return whether ``[ ... ]`` tests, joined by && and ||, hold; None where that cannot be told from texts."""
    result: bool | None = None
    joined = ""
    for words in commands:
        if words in (["&&"], ["||"]):
            joined = words[0]
            continue
        value = _test(words)
        if value is None:
            return None
        result = value if not joined or result is None else (result and value if joined == "&&" else result or value)
    return result


def _test(words: list[str]) -> bool | None:
    if len(words) < 3 or words[0] not in ("[", "[[") or words[-1] not in ("]", "]]"):
        return None
    inside = words[1:-1]
    negate = inside[0] == "!"
    inside = inside[1:] if negate else inside
    if any("$" in word or "`" in word for word in inside):
        return None
    value: bool | None = None
    if len(inside) == 2 and inside[0] in ("-z", "-n"):
        value = (inside[1] == "") == (inside[0] == "-z")
    elif len(inside) == 1 and inside[0] in ("-z", "-n"):  # an empty text vanished from the words
        value = inside[0] == "-z"
    elif len(inside) == 3 and inside[1] in ("=", "==", "!="):
        value = (inside[0] == inside[2]) == (inside[1] != "!=")
    elif len(inside) == 3 and inside[1] in _ORDER and inside[0].lstrip("-").isdecimal() and inside[2].isdecimal():
        value = _ORDER[inside[1]](int(inside[0]), int(inside[2]))
    return None if value is None else value != negate


_ORDER = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
}


def split_again(words: Sequence[str]) -> list[str]:
    """Return words with those taken apart that hold whole command lines (``bash -c "... --flag 1"``).

    >>> split_again(["sh", "-c", "python run.py --tp 2", "a b"])
    ['sh', '-c', 'python', 'run.py', '--tp', '2', 'a b']
    """
    result: list[str] = []
    for word in words:
        if re.search(r"(^|\s)--\w", word) and re.search(r"\s", word):
            try:
                result += shlex.split(word)
            except ValueError:
                result += word.split()
        else:
            result.append(word)
    return result


def options(words: Sequence[str], *, kebab: bool = True) -> tuple[dict[str, str | bool], list[str]]:
    """Return ``--name value``, ``--name=value`` and ``--name`` by name, and remarks about names given twice.

    Names are spelled with dashes (``kebab``) or with underscores; several values are joined by blanks.
    """
    found: dict[str, str | bool] = {}
    remarks: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not re.match(r"--\w", word):
            continue
        name, separator, value = word[2:].partition("=")
        name = name.replace("_", "-") if kebab else name.replace("-", "_")
        values = [value] if separator else []
        while at < len(words) and not separator and not re.match(r"--?[A-Za-z]", words[at]):
            values.append(words[at])
            at += 1
        result = " ".join(values) if values else True
        if name in found and found[name] != result:
            remarks.append(f"--{name} is given twice; the last one counts")
        found[name] = result
    return found, remarks


def split_command(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words before the first program (``.py``) that a command names, and those after it."""
    for at, word in enumerate(words):
        if word.endswith(".py"):
            return list(words[:at]), list(words[at + 1 :])
    return (list(words), []) if not words or not words[0].startswith("--") else ([], list(words))


def world_of(scripts: Mapping[str, str], gpus: int | None) -> World:
    """Return how many devices some launch scripts start; ``gpus`` by the user comes first.

    Raises:
        RequestError: a script cannot be read.
    """
    if gpus is not None:
        return World(devices=gpus, by_user=True)
    for name, text in scripts.items():
        devices = script_devices(read_script(text, name))
        if devices is not None:
            return World(devices=devices)
    return World(devices=None)


def script_devices(script: Script) -> int | None:
    """Return nodes times devices per node as the launcher, ``#SBATCH`` lines or the usual variables state them."""
    for command in script.commands:
        launcher, _ = split_command(split_again(command))
        found = options(launcher)[0]
        per_node = _count(found, "nproc-per-node", "num-gpus", "gpus-per-node")
        if per_node is not None:
            return per_node * (_count(found, "nnodes", "num-nodes", "nodes") or 1)
        if (processes := _count(found, "num-processes")) is not None:
            return processes
    found = options(script.sbatch)[0]
    nodes = _count(found, "nodes") or _short(script.sbatch, "-N")
    per_node = _count(found, "gpus-per-node", "gres", "ntasks-per-node")
    if nodes and per_node:
        return nodes * per_node
    numbers = {
        name: int(v) for name, v in script.variables.items() if isinstance(v, str) and re.fullmatch(r"\d{1,9}", v)
    }
    per_node = next((numbers[n] for n in ("GPUS_PER_NODE", "NPROC_PER_NODE", "NGPU") if n in numbers), None)
    nodes = next((numbers[n] for n in ("NNODES", "NUM_NODES") if n in numbers), None)
    if per_node and nodes:
        return per_node * nodes
    return numbers.get("WORLD_SIZE") or None


def _count(found: Mapping[str, str | bool], *names: str) -> int | None:
    for name in names:
        if match := re.search(r"(\d{1,7})$", str(found.get(name, ""))):
            return int(match[1]) or None
    return None


def _short(words: Sequence[str], flag: str) -> int | None:
    for at, word in enumerate(words[:-1]):
        if word == flag and words[at + 1].isdecimal():
            return int(words[at + 1])
    return None
