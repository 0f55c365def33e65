"""The verbs of the command line, in the order of its help.

A verb is an entry of ``data/verbs.json``, a file with its flags and examples in ``data/verbs``, and a module in
``verbs`` with ``run(args) -> exit code``. The module is imported after parsing, so that ``--help`` and wrong flags are
answered at once.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from forerun.search.cli.flags.reading import Declaration, read_data, read_declaration

if TYPE_CHECKING:
    import argparse


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
