"""A launch script as the commands it would start, read and never run."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from forerun.search.formats.command_line import slurm_variables
from forerun.search.formats.shell_lexer import Word, WordPart, lex
from forerun.search.formats.shell_words import NOTHING, Given, Scope, expand_word, positional
from forerun.spaces.errors import RequestError

_ASSIGN = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_DECLARE = ("export", "local", "readonly", "declare", "typeset")
_SOURCES = ("source", ".")
_SHELLS = ("bash", "sh")
_TESTS = ("[", "[[", "test", "!", "true", "false")
"""How a command that tests begins. That others succeed is taken for granted."""
_WRITTEN = re.compile(
    r"""^\s*cat\s*>\s*["']?([\w./-]+\.(?:sh|sbatch))["']?\s*<<-?\s*(["']?)(\w+)\2\s*\n(.*?)\n\s*\3\s*$""", re.M | re.S
)
"""A script that this one writes."""
_DEEPEST = 4
"""Scripts that read one another; published ones go two deep."""
_UNSET = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})")
_SBATCH = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a script says: its commands as words, its variables, its ``#SBATCH`` words, and what was left out."""

    commands: tuple[tuple[str, ...], ...]
    variables: Mapping[str, str | Sequence[str]]
    sbatch: tuple[str, ...]
    notes: tuple[str, ...]


def read_script(text: str, source: str, given: Given = NOTHING) -> Script:
    """Read a shell script, or a bare list of arguments, as if it were started with what was ``given``.

    Branches whose condition compares texts that the script assigns are decided; the others are left out, with a note.

    Raises:
        RequestError: quotes or brackets do not close, or variables grow without end.
    """
    if "\0" in text:
        raise RequestError(f"{source} is not a text file (it has null bytes)")
    return _Reader(source, given).read(text)


class _Reader:
    """Follows a script command by command."""

    def __init__(self, source: str, given: Given) -> None:
        self._source = source
        self._given = given
        self._scope = Scope()
        self._commands: list[tuple[str, ...]] = []
        self._notes: list[str] = []
        # One entry per open `if`: whether its current branch is read, whether one was taken, and whether all conditions
        # so far were decided. Then the words of a condition that is not complete yet.
        self._branches: list[list[bool]] = []
        self._condition: list[list[str]] | None = None
        self._depth = 0
        self._joined = ""
        self._succeeded: bool | None = True

    def read(self, text: str) -> Script:
        self._scope.values |= slurm_variables([word for match in _SBATCH.finditer(text) for word in match[1].split()])
        self._scope.values |= positional(self._given.arguments)
        if re.search(r"\$(@|\*|\{@\}|\{\*\})", text):
            # Scripts that take NAME=VALUE go through "$@" and export each.
            pairs = (word.partition("=") for word in self._given.arguments if _ASSIGN.match(word))
            self._scope.values |= {name: value for name, _, value in pairs}
        self._scope.values |= self._given.variables
        written = {PurePath(match[1]).name: match[4] for match in _WRITTEN.finditer(text)}
        self._given = dataclasses.replace(self._given, scripts={**written, **self._given.scripts})
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
            self._joined = word
            return
        joined, self._joined = self._joined, ""
        if self._condition is not None:
            self._condition.append(self._words(command))
        elif all(branch[0] for branch in self._branches):
            self._listed(line, joined, command)
        elif all(branch[0] or branch[2] for branch in self._branches) and (match := _assignment(command[0])):
            # Only a branch that is not taken assigns it: elsewhere it is empty, as in a shell.
            self._scope.values.setdefault(match[1], "")

    def _listed(self, line: int, joined: str, command: list[Word | str]) -> None:
        """Run a command of a list: what && or || joins to another only where that one's success says so."""
        if joined and self._succeeded is not (joined == "&&"):
            if self._succeeded is None and _assignment(command[0]) is not None:
                self._notes.append(f"line {line}: a condition cannot be decided; what follows {joined} is left out")
            return
        self._succeeded = _test(self._words(command)) if _plain(command[0]) in _TESTS else True
        self._run(command)

    def _open(self, word: str) -> None:
        if word == "if":
            self._branches.append([True, False, True])
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
            branch[0], branch[1], branch[2] = False, True, False
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
        if _plain(rest[0]) == "shift" if rest else False:
            count = _plain(rest[1]) if len(rest) > 1 else "1"
            self._scope.shift(int(count) if count and count.isdecimal() else 1)
        elif rest and (words := tuple(self._words(rest))):
            self._commands.append(words)
            self._source_of(words)
            self._inner(words)

    def _inner(self, words: tuple[str, ...]) -> None:
        """Go through the script that a shell is handed as a word (``bash -c "$CMD"``), with the variables around it."""
        shells = [at for at, word in enumerate(words[:-2]) if word in _SHELLS and words[at + 1] in ("-c", "-lc")]
        if not shells or self._depth == _DEEPEST or not re.search(r"[$\n]", words[shells[0] + 2]):
            return
        self._commands[-1] = words[: shells[0]] or ("bash",)
        self._depth += 1
        for line, command in lex(words[shells[0] + 2], self._source):
            self._command(line, command)
        self._depth -= 1

    def _source_of(self, words: tuple[str, ...]) -> None:
        """Go through a script that this one reads, where it was given with it."""
        at = next((at for at, word in enumerate(words[:-1]) if word in _SHELLS), 0)
        if len(words) < 2 or words[at] not in (*_SOURCES, *_SHELLS) or self._depth == _DEEPEST:
            return
        name = PurePath(words[at + 1]).name
        if (text := self._given.scripts.get(name)) is None:
            return
        self._depth += 1
        for line, command in lex(text, name):
            self._command(line, command)
        self._depth -= 1

    def _assign(self, name: str, append: bool, command: list[Word | str]) -> list[Word | str]:
        """Set a variable and return what follows it."""
        first = command[0]
        assert isinstance(first, tuple)
        if name in self._given.variables and len(command) > 1 and command[1] == "(":
            return command[command.index(")", 2) + 1 :]
        if name in self._given.variables:
            return command[1:]
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
        value = (WordPart(text=tail, quoted=True, expand=True), *(_as_quoted(piece) for piece in first[1:]))
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


def _as_quoted(piece: WordPart) -> WordPart:
    """The right side of an assignment is not split at blanks."""
    return WordPart(text=piece.text, quoted=True, expand=piece.expand)


def _plain(word: Word | str) -> str | None:
    if isinstance(word, str) or len(word) != 1 or word[0].quoted:
        return None
    return word[0].text


def _assignment(word: Word | str) -> re.Match[str] | None:
    if isinstance(word, str) or word[0].quoted or not word[0].expand:
        return None
    return _ASSIGN.match(word[0].text)


def _truth(commands: list[list[str]]) -> bool | None:
    """Return whether tests that are joined by && and || hold; None where that cannot be told from texts."""
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
    if words[:1] == ["!"]:
        other = _test(words[1:])
        return None if other is None else not other
    if words in (["true"], ["false"]):
        return words == ["true"]
    words = ["[", *words[1:], "]"] if words[:1] == ["test"] else words
    if len(words) < 3 or words[0] not in ("[", "[[") or words[-1] not in ("]", "]]"):
        return None
    inside = words[1:-1]
    negate = inside[0] == "!"
    inside = inside[1:] if negate else inside
    value: bool | None = None
    if len(inside) == 2 and inside[0] in ("-z", "-n") and _UNSET.fullmatch(inside[1]):
        # Nobody sets it: the script's own default counts, as it does where nothing is exported.
        return (inside[0] == "-z") != negate
    if any("$" in word or "`" in word for word in inside):
        return None
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
