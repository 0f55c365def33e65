"""Parsing of a command line into values of declared flags, with a specific message for every refusal."""

import re
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forerun.search.cli.flags.declaration import Answer, Flag, Many, UserDefault
from forerun.search.cli.flags.kinds import OUTPUT, Unreadable
from forerun.spaces.errors import RequestError, nearest
from forerun.spaces.escaping import quoted

NUMBER = re.compile(r"-\d+|-\d*\.\d+")
FORMER = {
    **dict.fromkeys(("--placement", "--colocated", "--policy", "--window", "--barrier"), "--servers"),
    "--server-bandwidth": "--servers",
    "--uneven-stages": "--per-stage layers",
    "--seconds": "--time-limit",
    "--launch-format": "--format",
    "--buckets": "--bucket",
    "--plot": "--report",
    "--predictions": "--out",
    "--stagnation": "--evaluations",
}
"""Flags of earlier releases, and their replacements."""
ELSEWHERE = {
    **FORMER,
    **dict.fromkeys(("--gbs", "--batch", "--batch-size", "--global-batch-size", "--bs"), "--global-batch"),
    **dict.fromkeys(("--seqlen", "--seq", "--sequence-length", "--max-seq-len", "--context-length"), "--seq-len"),
    **dict.fromkeys(("--nodes", "--nnodes", "--num-nodes", "--world-size", "--n-gpus", "--devices"), "--gpus"),
    **dict.fromkeys(("--hardware", "--system", "--machine", "--device", "--gpu-type"), "--cluster"),
    **dict.fromkeys(("--dtype", "--fp8", "--bf16", "--fp16"), "--precision"),
}
"""Names of forerun's flags in other tools and earlier releases."""


class HelpWanted(Exception):
    """``--help`` is among the words."""


class Words:
    """Words to parse, and the allowed flags."""

    def __init__(
        self,
        program: str,
        flags: Iterable[Flag],
        words: Sequence[str],
        defaults: Mapping[str, UserDefault] | None = None,
    ) -> None:
        self.program, self._words, self._defaults = program, list(words), defaults or {}
        self.flags = tuple(flags)
        self.named = {spelling: flag for flag in self.flags for spelling in flag.spellings}
        self.arguments = [flag for flag in self.flags if flag.is_argument]
        self.see = f"see `{program} --help`"

    def parse(self, rest: str | None) -> Namespace:
        """Return the values by name.

        ``given`` of the result has the flag of every value other than the default, ``filled`` the texts of values from
        files of defaults. ``rest``: name of the value with the words after ``--``; without it they are arguments.
        """
        values: dict[str, Any] = {}
        loose: list[str] = []
        after: list[str] = []
        self._refuse_unknown()
        while self._words:
            word = self._words.pop(0)
            if word == "--":
                after, self._words = self._words, []
            elif _is_flag(word):
                self._read_flag(word, values)
            else:
                loose.append(word)
        self._read_arguments(loose if rest else loose + after, values)
        given = {flag.dest: flag for flag in self.flags if values.get(flag.dest, _start(flag)) != _start(flag)}
        filled = self._filled(values)
        values |= {name: default.value for name, default in filled.items()}
        self._require(values)
        parsed = Namespace(**{flag.dest: values.get(flag.dest, _start(flag)) for flag in self.flags})
        parsed.given, parsed.filled = given, {name: default.text for name, default in filled.items()}
        if rest:
            setattr(parsed, rest, tuple(after))
        for flag in self.flags:
            if flag.kind is OUTPUT and getattr(parsed, flag.dest) is not None:
                _check_output(flag, parsed)
        return parsed

    def _filled(self, values: Mapping[str, Any]) -> dict[str, UserDefault]:
        """Return the user's defaults of flags that were neither given nor excluded by another flag."""
        excluding = {flag.excludes for flag in self.flags if flag.dest in values}
        free = {flag.dest for flag in self.flags if flag.dest not in values and flag.name not in excluding}
        return {name: default for name, default in self._defaults.items() if name in free}

    def _refuse_unknown(self) -> None:
        """Look for unknown flags first: they explain a missing one."""
        for word in self._words:
            if word == "--":
                return
            if word in ("-h", "--help"):
                raise HelpWanted
            flag = word.split("=", 1)[0]
            if flag.startswith("--") and flag not in self.named:
                raise self._unknown(flag)

    def _unknown(self, flag: str) -> RequestError:
        """Return the error for a flag unknown to the verb, which may be the name of a positional argument."""
        for argument in self.arguments:
            if argument.name == flag.removeprefix("--"):
                return RequestError(f"{flag} is not a flag: write {self.program} {argument.label}, without {flag}")
        hint = ELSEWHERE.get(flag)
        if hint is not None and hint.split()[0] in self.named:
            return RequestError(f"unknown flag {flag!r}; did you mean {hint}?")
        near = nearest(flag.lstrip("-"), [name[2:] for name in self.named if name.startswith("--")])
        if near:
            return RequestError(f"unknown flag {flag!r}; did you mean {' or '.join(f'--{name}' for name in near)}?")
        return RequestError(f"unknown flag {flag!r}; {self.see}")

    def _read_flag(self, word: str, values: dict[str, Any]) -> None:
        name, equals, value = word.partition("=")
        flag = self.named.get(name)
        if flag is None:
            raise self._unknown(name)
        if flag.excludes and self.named[flag.excludes].dest in values:
            raise RequestError(f"{flag.name} and {flag.excludes} cannot be given together; drop one of them")
        if flag.is_switch:
            if equals:
                raise RequestError(f"{name} takes no value, but got {quoted(value)}")
            values[flag.dest] = True
            return
        texts = [value] if equals else self._values(flag)
        if not texts and flag.many is not Many.OPTIONAL:
            raise RequestError(f"{name} needs a value, {flag.metavar or flag.dest}: {flag.help}")
        read = [_read(flag, text) for text in texts]
        if flag.many is Many.REPEATED:
            values.setdefault(flag.dest, []).extend(read)
        elif flag.is_list:
            values[flag.dest] = read
        else:
            values[flag.dest] = read[0] if read else flag.bare

    def _values(self, flag: Flag) -> list[str]:
        most = len(self._words) if flag.many in (Many.SOME, Many.ANY) else 1
        texts: list[str] = []
        while self._words and len(texts) < most and not _is_flag(self._words[0]):
            texts.append(self._words.pop(0))
        if texts and self._words and self._words[0] == flag.kind.unit_word:
            texts[-1] += f" {self._words.pop(0)}"
        return texts

    def _read_arguments(self, arguments: list[str], values: dict[str, Any]) -> None:
        for flag in self.arguments:
            most = len(arguments) if flag.is_list else 1
            taken, arguments = arguments[:most], arguments[most:]
            if taken:
                read = [_read(flag, text) for text in taken]
                values[flag.dest] = read if flag.is_list else read[0]
        if arguments:
            missing = self._missing(values)
            hint = f"did you mean {missing[0].name} {quoted(arguments[0])}?" if missing else self.see
            raise RequestError(f"unexpected argument {quoted(arguments[0])}; {hint}")

    def _missing(self, values: Mapping[str, Any]) -> list[Flag]:
        return [flag for flag in self.flags if flag.required and flag.dest not in values]

    def _require(self, values: Mapping[str, Any]) -> None:
        missing = self._missing(values)
        if not missing:
            return
        names = " and ".join(flag.label for flag in missing)
        raise RequestError(f"{names} {'is' if len(missing) == 1 else 'are'} required; {self.see}")


def _is_flag(word: str) -> bool:
    name = word.split("=", 1)[0]
    return len(word) > 1 and word.startswith("-") and " " not in name and NUMBER.fullmatch(word) is None


def _start(flag: Flag) -> Any:
    return list(flag.start) if isinstance(flag.start, list) else flag.start


def _read(flag: Flag, text: str) -> Any:
    """Return the value of a word."""
    if flag.choices and text not in flag.choices:
        near = nearest(text, flag.choices, count=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise RequestError(f"{flag.label} must be one of {', '.join(flag.choices)}, but got {quoted(text)}{hint}")
    try:
        return flag.kind.read(text)
    except Unreadable as error:
        raise RequestError(f"{flag.label} {error}") from None


def _check_output(flag: Flag, parsed: Namespace) -> None:
    """Refuse an output file that another flag names, or that exists without ``--force``."""
    from forerun.spaces.files import check_output

    path: Path = getattr(parsed, flag.dest)
    for name, value in vars(parsed).items():
        others = value if isinstance(value, list) else [value]
        if name != flag.dest and any(_same(path, other) for other in others):
            raise RequestError(f"{flag.name} {path} is also read or written by another flag or argument")
    check_output(path, force=bool(parsed.force))


def _same(path: Path, other: object) -> bool:
    """Whether an argument of any kind names the file at ``path``."""
    if not isinstance(other, str | Path):
        return False
    try:
        return path == Path(other) or path.samefile(other)
    except (OSError, ValueError):
        return False


def refuse_unserved(parsed: Namespace, answer: Answer, why: str) -> None:
    """Refuse flags that do not apply to an answer; ``why`` ends the message after the flag."""
    for flag in parsed.given.values():
        if answer not in flag.serves:
            raise RequestError(f"{flag.name} {why}")
