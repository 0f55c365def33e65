"""Variables and arguments of a script while it is read."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from forerun.search.formats.shell.given import Given
from forerun.spaces.errors import RequestError

LARGEST_TEXT = 1 << 20
"""Most characters of all values of a script after expansion; real scripts have thousands."""

Value = str | list[str] | dict[str, str]

_SUBSTITUTION = re.compile(r"\S*\$\([^\s(]*…\)\S*")


class Variables:
    """Variables by name, with arrays as lists or dictionaries, and the arguments of the script or function."""

    def __init__(self, given: Given, source: str, values: Mapping[str, Value]) -> None:
        """Start with the arguments and environment of a script; ``values`` are variables that its queue sets."""
        self._given = given.variables
        self._source = source
        self._spent = 0
        self.values: dict[str, Value] = {"BASH_SOURCE": [source], **values, **given.variables}
        self.unknown: set[str] = set()
        """Names whose values only a run would know."""
        self._bare = given.bare
        self.arguments: list[str] | None = list(given.arguments) or ([] if given.bare else None)
        """None: nobody said with which arguments the script is started."""

    def value(self, name: str) -> Value | None:
        """Return the value of a variable or an argument, None if unset or unknown before a run."""
        if name == "#":
            return str(len(self.arguments or ()))
        if not name.isdecimal():
            return self.values.get(name)
        place, arguments = int(name[:6]), self.arguments or []
        if not place:
            return self._source
        if 1 <= place <= len(arguments):
            return arguments[place - 1]
        return "" if self._bare and place else None

    def is_unset(self, name: str) -> bool:
        """Whether a name is never set, so that it is empty unless the environment has it."""
        return name not in self.unknown and self.value(name) is None

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Undo the assignments of a subshell at its end."""
        values, unknown, arguments = dict(self.values), set(self.unknown), self.arguments
        try:
            yield
        finally:
            self.values, self.unknown, self.arguments = values, unknown, arguments

    def is_given(self, name: str) -> bool:
        """Whether the user gave the value of a name."""
        return name in self._given

    @property
    def state(self) -> tuple[object, ...]:
        """Snapshot of the variables that a turn of a loop may change."""
        return dict(self.values), frozenset(self.unknown), tuple(self.arguments or ())

    def assign(self, name: str, value: Value) -> None:
        """Set a variable, unless the user gave its value; a value from a command substitution is unknown."""
        if name in self._given:
            return
        self.unknown.discard(name)
        if isinstance(value, str) and _SUBSTITUTION.fullmatch(value):
            self.forget(name)
        else:
            self.values[name] = value

    def forget(self, name: str) -> None:
        """Make the value of a variable unknown."""
        if name not in self._given:
            self.values.pop(name, None)
            self.unknown.add(name)

    def unset(self, name: str) -> None:
        """Remove a variable."""
        if name not in self._given:
            self.values[name] = ""

    def shift(self, count: int) -> None:
        """Drop the first ``count`` arguments."""
        if self.arguments is not None:
            self.arguments = self.arguments[count:]

    def spend(self, text: str) -> str:
        """Count ``text`` against the limit of characters.

        Raises
        ------
        RequestError
            The script's variables grow without end.
        """
        self._spent += len(text)
        if self._spent > LARGEST_TEXT:
            raise RequestError(
                f"{self._source}: variables of the script expand to more than {LARGEST_TEXT:,} characters"
            )
        return text

    @property
    def stated(self) -> dict[str, str | Sequence[str]]:
        """Variables at the end of the script; unknown ones as references."""
        known = {name: list(value) if isinstance(value, dict) else value for name, value in self.values.items()}
        return {**known, **{name: f"${name}" for name in self.unknown}}
