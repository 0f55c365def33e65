"""The state of a script while its statements are followed: variables, functions, commands and notes."""

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from forerun.search.formats.shell.conditions import Conditions
from forerun.search.formats.shell.given import Given
from forerun.search.formats.shell.tree import LONGEST_PARSE_S, line_of, parse_shell, text_of
from forerun.search.formats.shell.variables import Value, Variables
from forerun.search.formats.shell.words import ScriptWords
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from tree_sitter import Node

_DEEPEST = 4
"""Deepest nesting of scripts; published ones have two levels."""
MOST_STATEMENTS, MOST_WORDS = 5_000, 50_000
"""Most statements and command words of a script: a second of work."""


class StatementOutcome(Enum):
    """End of a statement."""

    SUCCESS = auto()
    FAILURE = auto()
    UNKNOWN = auto()
    """A test that is undecidable before a run."""
    STARTED = auto()
    """A program, which is assumed to succeed."""

    @classmethod
    def of(cls, truth: bool | None) -> "StatementOutcome":
        """Return the outcome of a test."""
        return cls.UNKNOWN if truth is None else cls.SUCCESS if truth else cls.FAILURE


class Leave(Exception):
    """Exit from a loop, a function or the script, by its word."""

    def __init__(self, word: str) -> None:
        """Take ``break``, ``continue``, ``return`` or ``exit``."""
        super().__init__(word)
        self.word = word


Follow = Callable[["ScriptReader", "Node"], StatementOutcome]


class ScriptReader:
    """Reader of a script statement by statement; ``statements`` has a function for each kind."""

    def __init__(
        self,
        source: str,
        given: Given,
        statements: Mapping[str, Follow],
        set_by_queue: Mapping[str, Value],
        output: Callable[["ScriptReader", "Node"], str | None],
    ) -> None:
        """Start a script with its arguments and environment (``given``) and the variables of its queue.

        ``output`` returns the output of a command substitution.
        """
        self.source = source
        self.scripts = dict(given.scripts)
        self.variables = Variables(given, source, set_by_queue)
        self.words = ScriptWords(self.variables, lambda node: output(self, node))
        self.conditions = Conditions(self.words, self.variables)
        self.functions: dict[str, Node] = {}
        self.local: list[dict[str, Value | None]] = []
        """Values that functions in progress hide."""
        self.sbatch: list[str] = []
        """Options of scripts that are submitted from here-documents."""
        self.files: dict[str, str] = {}
        """Texts by file name of here-documents that are written."""
        self.commands: list[tuple[str, ...]] = []
        self.printed: list[str | None] | None = None
        """Output of the substitution in progress, with None for what only a run would print."""
        self.undecided = False
        """Whether a test that only a run would decide was met."""
        self.notes: dict[str, None] = {}
        self._follow = statements
        self._depth = 0
        self._statements = self._words = 0
        self._until_s = time.thread_time() + LONGEST_PARSE_S

    def note(self, text: str, node: "Node | None" = None) -> None:
        """Add a note, once."""
        self.notes[text if node is None else f"line {line_of(node)}: {text}"] = None

    def left_out(self, kind: str, nodes: Sequence["Node"]) -> None:
        """Add a note on an undecidable condition."""
        shown = " ".join("; ".join(text_of(node) for node in nodes).split())[:80]
        self.note(f"the {kind} {shown!r} cannot be decided; its branches are left out", nodes[0])

    def inside(self, text: str, source: str) -> None:
        """Follow a script, or the text of a word or a here-document."""
        if self._depth >= _DEEPEST:
            return
        root, notes = parse_shell(text, source, self._until_s)
        self.notes |= dict.fromkeys(notes)
        self._depth += 1
        try:
            self.block(root.named_children)
        except Leave:
            pass
        finally:
            self._depth -= 1

    def block(self, nodes: Sequence["Node"]) -> StatementOutcome:
        """Follow statements one after the other; the last one gives the outcome."""
        outcome = StatementOutcome.SUCCESS
        for node in nodes:
            if node.type not in ("comment", "heredoc_body"):
                outcome = self.run(node)
        return outcome

    def run(self, node: "Node") -> StatementOutcome:
        """Follow one statement.

        Raises
        ------
        RequestError
            The script runs for too long.
        """
        self._statements += 1
        if self._statements > MOST_STATEMENTS:
            raise RequestError(f"{self.source} runs more than {MOST_STATEMENTS:,} statements")
        follow = self._follow.get(node.type)
        outcome = StatementOutcome.SUCCESS if follow is None else follow(self, node)
        self.undecided |= outcome is StatementOutcome.UNKNOWN
        return outcome

    def count_words(self, count: int) -> None:
        """Count words of a command.

        Raises
        ------
        RequestError
            The commands of the script have too many words.
        """
        self._words += count
        if self._words > MOST_WORDS:
            raise RequestError(f"{self.source} runs commands of more than {MOST_WORDS:,} words")

    def truth(self, nodes: Sequence["Node"]) -> bool | None:
        """Evaluate conditions, the last one decides; None for a program, which may fail."""
        return {StatementOutcome.SUCCESS: True, StatementOutcome.FAILURE: False}.get(self.block(nodes))
