"""The verbs of the command line, in the order of its help.

A verb is an entry of ``data/verbs.json``, a file of its name in ``data/verbs`` with its flags and examples, and a
module of its name in ``verbs`` with ``run(args) -> exit code``. The module is imported when its words have been parsed,
so that ``--help`` and wrong flags are answered at once.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from forerun.search.cli.flags.reading import Declaration, read_data, read_declaration

if TYPE_CHECKING:
    import argparse


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A verb: its name, what it does in one line, and what a terminal shows while it works (empty: it shows that
    itself, or another program does)."""

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
