"""The verbs of the command line, in the order of its help.

A verb is an entry of ``data/verbs.json``, a file with its flags and examples in ``data/verbs``, and a module in
``verbs`` with ``run(args) -> exit code``. The module is imported after parsing, so that ``--help`` and wrong flags are
answered at once.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from forerun.search.cli.flags import declaration
from forerun.search.cli.flags.declaration import Declared, Flag, Group, Many
from forerun.search.cli.flags.kinds import KINDS
from forerun.search.formats.registry import WRITTEN

if TYPE_CHECKING:
    import argparse


ANSWERS = {
    "every": declaration.EVERY,
    "transformers": declaration.TRANSFORMERS,
    "one transformer": declaration.ONE_TRANSFORMER,
    "equal nodes": declaration.EQUAL_NODES,
    "graphs": declaration.GRAPHS,
}
"""Words for the answers of a flag."""
WORDS: Mapping[str, Mapping[str, Any]] = {
    "kind": KINDS,
    "many": {many.name.lower(): many for many in Many},
    "serves": ANSWERS,
}
"""Fields of a flag named in data by a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """Flags of a verb and texts of its help.

    Attributes
    ----------
    flags
        In the order of the help.
    epilog
        Examples and remarks, printed below the flags.
    usage
        First line of the help (None: from the flags).
    rest
        Name of the value with the words after ``--`` (None: they are arguments).
    """

    flags: Declared
    epilog: str
    usage: str | None = None
    rest: str | None = None


def read_declaration(verb: str) -> Declaration:
    """Read the declaration of a verb."""
    data = read_data("verbs", f"{verb}.json")
    epilog = "\n".join(data["epilog"]).replace("{formats}", ", ".join(WRITTEN))
    return Declaration(**data | {"flags": tuple(map(_item, data["flags"])), "epilog": epilog})


def read_data(*path: str) -> dict[str, Any]:
    """Read a data file of the command line; JSON, so that help need not import YAML."""
    data: dict[str, Any] = json.loads(files("forerun.search.cli").joinpath("data", *path).read_text(encoding="utf-8"))
    return data


def _item(entry: Mapping[str, Any]) -> Flag | Group:
    if "use" in entry:
        return _changed(_item(_shared()[entry["use"]]), **{key: value for key, value in entry.items() if key != "use"})
    if "group" in entry:
        flags = [item for item in map(_item, entry["flags"]) if isinstance(item, Flag)]
        return Group(entry["group"], tuple(flags))
    return Flag(**_fields(entry))


@cache
def _shared() -> Mapping[str, Mapping[str, Any]]:
    return read_data("shared.json")


def _changed(
    item: Flag | Group, *, title: str = "", without: Collection[str] = (), optional: Collection[str] = (), **fields: Any
) -> Flag | Group:
    """Change a shared flag's fields, or a shared group's title and flags."""
    if isinstance(item, Flag):
        return replace(item, **_fields(fields))
    flags = (flag for flag in item.flags if flag.name not in without)
    kept = tuple(replace(flag, required=flag.required and flag.name not in optional) for flag in flags)
    return Group(title or item.title, kept)


def _fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    converted = {key: WORDS[key][value] for key, value in entry.items() if key in WORDS}
    return {**entry, **converted, **({"choices": tuple(entry["choices"])} if "choices" in entry else {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb: name, summary, and progress text (empty: the verb or another program shows progress)."""

    name: str
    summary: str
    doing: str = ""

    @property
    def declaration(self) -> Declaration:
        """Flags, examples and usage."""
        return read_declaration(self.name)

    def run(self, args: "argparse.Namespace") -> int:
        """Run the verb and return its exit code."""
        code: int = import_module(f"forerun.search.cli.verbs.{self.name}").run(args)
        return code


VERBS = tuple(Verb(name=name, **texts) for name, texts in read_data("verbs.json").items())
