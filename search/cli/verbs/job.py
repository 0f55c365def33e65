"""``forerun job``: commands of a document."""

import argparse
import re
import shlex
import sys
from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from forerun.search.cli.program import dispatch
from forerun.spaces.documents import read_document, validate
from forerun.spaces.errors import RequestError, unknown

Word = str | int | float


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CommandDocument(_Part):
    """One command: a verb with its arguments and flags."""

    verb: str
    arguments: list[Word] = []
    flags: dict[str, bool | Word | list[Word]] = {}

    def words(self) -> Iterator[str]:
        """Yield the command as words."""
        yield self.verb
        yield from map(str, self.arguments)
        for name, value in self.flags.items():
            if isinstance(value, bool):
                yield from [f"--{name}"] * value
            else:
                for one in value if isinstance(value, list) else [value]:
                    yield f"--{name}={one}"


class CommandsDocument(_Part):
    """The commands of a file, and the values of their variables."""

    values: dict[str, Word] = {}
    jobs: Annotated[list[CommandDocument], Field(min_length=1, max_length=10_000)]


_REFUSED = {"job": "list its jobs here", "record": "it runs programs, which only the command line may name"}
_NAME = re.compile(r"\$\{([^{}]{0,100})\}")


def run(args: argparse.Namespace) -> int:
    """Run the commands until one fails; return the exit code of the last."""
    document = validate(read_document(args.document), CommandsDocument)
    values = {name: str(value) for name, value in document.values.items()} | _set(args.set)
    commands = [[_filled(word, values) for word in job.words()] for job in document.jobs]
    for verb in {command[0] for command in commands} & _REFUSED.keys():
        raise RequestError(f"a document of jobs does not run {verb}; {_REFUSED[verb]}")
    for command in commands:
        print(f"forerun: $ forerun {shlex.join(command)}", file=sys.stdout if args.show else sys.stderr)
        code = 0 if args.show else dispatch(command)
        if code:
            return code
    return 0


def _set(settings: list[str]) -> dict[str, str]:

    pairs = [word.partition("=") for word in settings]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise RequestError(f"--set takes NAME=VALUE, but got {name!r}")
    return {name: value for name, _, value in pairs}


def _filled(word: str, values: dict[str, str]) -> str:
    """Return a word with variables replaced by their values."""
    for name in _NAME.findall(word):
        if name not in values:
            raise unknown("value", name, values)
    return _NAME.sub(lambda match: values[match[1]], word)
