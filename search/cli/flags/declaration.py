"""The declaration of a flag: its name, its values and the answers to which it applies."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any

from forerun.search.cli.flags.kinds import SWITCH, TEXT, ValueKind


class Answer(Enum):
    """Kinds of requests; a flag applies to some of them."""

    TRANSFORMER = "transformers"
    GRAPH = "operator graphs"
    GROUPS = "nodes that differ"
    JOBS = "files of jobs"
    TRACES = "traces"


MODELS = frozenset({Answer.TRANSFORMER, Answer.GRAPH, Answer.GROUPS})
EVERY = frozenset(Answer)
TRANSFORMERS = frozenset({Answer.TRANSFORMER, Answer.GROUPS})
ONE_TRANSFORMER = frozenset({Answer.TRANSFORMER})
EQUAL_NODES = frozenset({Answer.TRANSFORMER, Answer.GRAPH})
GRAPHS = frozenset({Answer.GRAPH})


class Many(Enum):
    """Numbers of words of a flag or an argument."""

    ONE = None
    OPTIONAL = "?"
    SOME = "+"
    ANY = "*"
    REPEATED = "repeated"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag, or a positional argument (``name`` without dashes).

    Attributes
    ----------
    name, metavar, help
        Spelling, word for the value, and effect.
    kind, choices, unit
        Kind of its values, the allowed words if few, and the unit of a number.
    default, bare
        Value without the flag, and value of the flag without a word.
    many, required
        Number of its words; whether it is required.
    key
        Name of the value in the parsed arguments, if different from the flag's.
    excludes
        Another flag that excludes it.
    serves
        Answers to which the flag applies; others refuse it by name.
    configurable
        Whether a file of defaults (``forerun.toml``) may set its value.
    """

    name: str
    help: str
    kind: ValueKind = TEXT
    metavar: str = ""
    _: KW_ONLY
    choices: tuple[str, ...] = ()
    unit: str = ""
    default: Any = None
    bare: Any = None
    many: Many = Many.ONE
    required: bool = False
    key: str = ""
    excludes: str = ""
    serves: frozenset[Answer] = MODELS
    configurable: bool = False

    @property
    def dest(self) -> str:
        """Name of the value in the parsed arguments."""
        return self.key or self.name.lstrip("-").replace("-", "_")

    @property
    def property_name(self) -> str:
        """Name of the value in JSON."""
        return self.name.lstrip("-").replace("-", "_")

    @property
    def is_argument(self) -> bool:
        """Whether it is positional."""
        return not self.name.startswith("-")

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return self.kind is SWITCH

    @property
    def label(self) -> str:
        """Name for a reader: the flag, or the word for an argument."""
        return self.metavar if self.is_argument and self.metavar and not self.choices else self.name

    @property
    def spellings(self) -> tuple[str, ...]:
        """Spellings on the command line; none for an argument."""
        return () if self.is_argument else (self.name,)

    @property
    def is_list(self) -> bool:
        """Whether its value is a list."""
        return self.many in (Many.SOME, Many.ANY, Many.REPEATED)

    @property
    def start(self) -> Any:
        """Value if it is not given."""
        if self.is_switch:
            return False
        return [] if self.is_list and self.default is None and self.many is not Many.SOME else self.default


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDefault:
    """A flag's value from a file of defaults."""

    value: Any
    text: str
    """Sentence part for the defaults used."""


@dataclass(frozen=True, slots=True)
class Group:
    """Flags under one title of the help."""

    title: str
    flags: tuple[Flag, ...]


Declared = tuple[Flag | Group, ...]
"""The flags of a verb, in the order of its help."""

DEBUG = Flag("--debug", "on an error also print the trace", SWITCH, serves=EVERY)


def flags_of(declared: Iterable[Flag | Group]) -> Iterator[Flag]:
    """Yield the flags of a verb, flags of every verb first."""
    yield DEBUG
    for item in declared:
        yield from item.flags if isinstance(item, Group) else (item,)


def json_schema(flags: Iterable[Flag]) -> dict[str, Any]:
    """Return the JSON schema of an object with a property for every flag."""
    listed = list(flags)
    return {
        "type": "object",
        "properties": {flag.property_name: _property(flag) for flag in listed},
        "required": list(dict.fromkeys(flag.property_name for flag in listed if flag.required)),
        "additionalProperties": False,
    }


def _property(flag: Flag) -> Mapping[str, Any]:
    value: dict[str, Any] = dict(flag.kind.schema)
    if flag.choices:
        value["enum"] = list(flag.choices)
    if flag.many is Many.OPTIONAL:
        value = {"anyOf": [value, {"type": "boolean"}]}
    if flag.is_list:
        value = {"type": "array", "items": value}
    unit = f" ({flag.unit})" if flag.unit else ""
    stated = {} if flag.start in (None, False, []) else {"default": flag.default}
    return {**value, "description": flag.help + unit, **stated}
