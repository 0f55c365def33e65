"""The document of ``forerun job``: commands, and the values of their variables."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

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
