"""Conditions of a script, evaluated from texts and numbers; None for conditions unknown before a run."""

import fnmatch
import glob
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from forerun.search.formats.shell.tree import text_of, whole_number
from forerun.search.formats.shell.variables import Variables
from forerun.search.formats.shell.words import UNKNOWN, ScriptWords

if TYPE_CHECKING:
    from tree_sitter import Node

_REFERENCE = re.compile(r"\$(?:([A-Za-z_]\w*|\d+)|\{([A-Za-z_]\w*|\d+)\})")
_SIMPLE = re.compile(r"\^?[\w. -]*(?:\.\*)?[\w. -]*\$?")
"""Regular expressions with equal meaning in shell and Python, and bounded run time."""
_ORDER: Mapping[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
}
_EXTENDED = re.compile(r"[@?*+!]\(")
"""Patterns that need an option of bash."""
_FILES = tuple("-" + letter for letter in "abcdefghkprstuwxLOGSN")


def negated(value: bool | None) -> bool | None:
    """Return the negation of a truth value, None for an unknown one."""
    return None if value is None else not value


def both(left: bool | None, right: bool | None) -> bool | None:
    """Combine two conditions: a false one makes the result false."""
    return False if left is False or right is False else None if left is None or right is None else True


class Conditions:
    """Evaluator of the tests of one script."""

    def __init__(self, words: ScriptWords, variables: Variables) -> None:
        """Take the expansion of words, and the variables of tests."""
        self._words = words
        self._variables = variables

    def of_command(self, node: "Node") -> bool | None:
        """Evaluate ``[ ... ]``, ``[[ ... ]]`` or ``(( ... ))``."""
        opener = node.children[0].type
        if opener.startswith("(("):
            number = self._words.number(node)
            return None if number is None else number != 0
        if opener == "[":
            return self.of_words(self._flat(node.children[1:-1]))
        return self._of_expression(node.named_children[0]) if node.named_children else None

    def of_words(self, words: Sequence[str]) -> bool | None:
        """Evaluate the words between ``[`` and ``]``."""
        for joint in ("-o", "-a"):
            if joint in words[1:-1]:
                at = words.index(joint, 1)
                left, right = self.of_words(words[:at]), self.of_words(words[at + 1 :])
                return both(left, right) if joint == "-a" else negated(both(negated(left), negated(right)))
        if words and words[0] == "!":
            return negated(self.of_words(words[1:]))
        if len(words) == 3:
            return self._compared(words[0], words[1], words[2], glob.escape(words[2]))
        if len(words) == 2:
            return self._unary(words[0], words[1])
        if len(words) == 1 and words[0] in ("-z", "-n"):  # an empty text vanished from the words
            return words[0] == "-z"
        return self._unary("-n", words[0] if words else "") if len(words) < 2 else None

    def matches(self, text: str, pattern: str) -> bool | None:
        """Match a text with a pattern."""
        if UNKNOWN.search(text) or UNKNOWN.search(pattern) or _EXTENDED.search(pattern):
            return None
        return fnmatch.fnmatchcase(text, pattern)

    def _flat(self, nodes: Sequence["Node"]) -> list[str]:
        """Return the words of a test in ``[`` syntax."""
        words: list[str] = []
        for node in nodes:
            if node.type in ("binary_expression", "unary_expression"):
                words += self._flat(node.children)
            elif node.is_named and node.type != "test_operator":
                words += self._words.fields([node])
            else:
                words.append(text_of(node))
        return words

    def _of_expression(self, node: "Node") -> bool | None:
        """Evaluate an expression between ``[[`` and ``]]``."""
        parts = node.named_children
        if node.type == "parenthesized_expression" and parts:
            return self._of_expression(parts[0])
        if node.type == "unary_expression" and node.children[0].type == "!":
            return negated(self._of_expression(node.children[1]))
        if node.type == "unary_expression":
            return self._unary(text_of(node.children[0]), self._words.text(node.children[1]))
        if node.type != "binary_expression":
            return self._unary("-n", self._words.text(node))
        left, symbol, right = node.children[0], text_of(node.children[1]), node.children[2]
        if symbol in ("&&", "||"):
            first, second = self._of_expression(left), self._of_expression(right)
            return both(first, second) if symbol == "&&" else negated(both(negated(first), negated(second)))
        return self._compared(self._words.text(left), symbol, self._words.text(right), self._words.pattern(right))

    def _unary(self, symbol: str, text: str) -> bool | None:
        if symbol in _FILES:
            return None
        reference = _REFERENCE.fullmatch(text)
        if reference and self._variables.is_unset(reference[1] or reference[2]):
            text = ""  # unset: the script's default counts, as without an exported value
        if UNKNOWN.search(text) or symbol not in ("-z", "-n"):
            return None
        return (text == "") == (symbol == "-z")

    def _compared(self, left: str, symbol: str, right: str, pattern: str) -> bool | None:
        if symbol in _ORDER:
            first, second = self._number(left), self._number(right)
            return None if first is None or second is None else _ORDER[symbol](first, second)
        if symbol in ("=", "=="):
            return self.matches(left, pattern)
        if symbol == "!=":
            return negated(self._compared(left, "==", right, pattern))
        if symbol == "=~" and _SIMPLE.fullmatch(right) and not UNKNOWN.search(left):
            return re.search(right, left) is not None
        return None

    def _number(self, text: str) -> int | None:
        number = whole_number(text)
        value = self._variables.value(text) if number is None else None
        return whole_number(value) if isinstance(value, str) else number
