"""Expansion of the words of a script as text, without execution.

Values unknown before a run stay as written, without blanks, so that they remain one word: an unset variable as
``$NAME``, a command substitution as ``$(command…)``.
"""

import fnmatch
import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forerun.search.formats.shell.arithmetic import arithmetic
from forerun.search.formats.shell.tree import parse_shell, text_of, whole_number
from forerun.search.formats.shell.variables import Value, Variables

if TYPE_CHECKING:
    from tree_sitter import Node

_NESTED = re.compile(r"\$\(\((.{0,200})\)\)", re.DOTALL)
"""Arithmetic inside arithmetic, which the grammar parses as a substitution."""
UNKNOWN = re.compile(r"[$`]")
"""Mark of a text with an unknown value."""
_EXPANSIONS = ("simple_expansion", "expansion", "arithmetic_expansion", "command_substitution", "process_substitution")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_DEFAULTS = (":-", "-", ":=", "=", ":+", "+")
_ELEMENTS = ("@", "*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Part of a word: elements of an array, or one text; ``quoted`` or not, and whether its blanks end words."""

    elements: tuple[str, ...]
    quoted: bool
    split: bool = False

    @property
    def text(self) -> str:
        """The elements as one text."""
        return " ".join(self.elements)


class ScriptWords:
    """Expander of the words of one script."""

    def __init__(self, variables: Variables, output: Callable[["Node"], str | None]) -> None:
        """Take the variables that words refer to, and a function for the output of a substitution."""
        self._variables = variables
        self._output = output

    def fields(self, nodes: Sequence["Node"]) -> list[str]:
        """Expand words: unquoted expansions are split at blanks, arrays into elements."""
        return [field for node in nodes for field in _fields(self._pieces(node, quoted=False))]

    def text(self, node: "Node") -> str:
        """Return a word as one text, as in an assignment."""
        return "".join(piece.text for piece in self._pieces(node, quoted=False))

    def body(self, node: "Node") -> str:
        """Return a here-document with its variables expanded."""
        return "".join(
            piece.text for piece in self._sequence(node.children, node.start_byte, node.end_byte, True, node)
        )

    def pattern(self, node: "Node") -> str:
        """Return a word as a pattern of file names: quoted parts are literal."""
        return "".join(
            glob.escape(piece.text) if piece.quoted else piece.text for piece in self._pieces(node, quoted=False)
        )

    def array(self, node: "Node") -> Value:
        """Return an assigned array: by position, or by name (``[a]=1``)."""
        items = [child for child in node.named_children if child.type != "comment"]
        named = [re.fullmatch(r"\[(.+?)\]=(.*)", self.text(item), re.DOTALL) for item in items]
        if items and all(named):
            return {match[1].strip("\"'"): match[2] for match in named if match}
        return self.fields(items)

    def number(self, node: "Node") -> int | None:
        """Return the value of whole-number arithmetic; None if unknown before a run."""
        return arithmetic(node, self._number_of, self._assign_number)

    def _number_of(self, node: "Node") -> int | None:
        named = node.type in ("variable_name", "word") and not text_of(node)[0].isdecimal()
        if node.type == "subscript":
            value = self._named(node)[1]
        else:
            value = self._variables.value(text_of(node)) if named else self.text(node)
        return whole_number(value) if isinstance(value, str) else None

    def _assign_number(self, name: str, value: int | None) -> None:
        array, bracket, _ = name.partition("[")
        if value is None or bracket:
            self._variables.forget(array)
        else:
            self._variables.assign(name, str(value))

    def _pieces(self, node: "Node", *, quoted: bool) -> Iterator[Piece]:
        """Iterate over the parts of one word."""
        if node.type in _EXPANSIONS:
            yield from self._expansion(node, quoted)
        elif node.type == "string":
            start, end = node.start_byte + 1, node.end_byte - 1
            pieces = [*self._sequence(node.children[1:-1], start, end, True, node)]
            yield from pieces if start < end else [Piece(elements=("",), quoted=True)]
        elif node.type == "translated_string":
            yield from self._pieces(node.named_children[0], quoted=True)
        elif node.type == "raw_string":
            yield Piece(elements=(text_of(node)[1:-1],), quoted=True)
        elif node.type == "ansi_c_string":
            inside = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text_of(node)[2:-1])
            yield Piece(elements=(inside,), quoted=True)
        elif node.type in ("concatenation", "command_name"):
            yield from self._sequence(node.children, node.start_byte, node.end_byte, quoted, node)
        else:
            yield self._literal(text_of(node), quoted)

    def _sequence(
        self, children: Sequence["Node"], start: int, end: int, quoted: bool, parent: "Node"
    ) -> Iterator[Piece]:
        """Iterate over the parts of a range of the script: its nodes, and the text between them."""
        text, offset = parent.text or b"", parent.start_byte
        at = start
        for child in children:
            if not start <= child.start_byte < end or (quoted and child.type not in (*_EXPANSIONS, "string")):
                continue
            first = child.end_byte - len((child.text or b"").lstrip())  # the grammar attaches blanks to the next node
            if first > at:
                yield self._literal(text[at - offset : first - offset].decode(errors="replace"), quoted)
            yield from self._pieces(child, quoted=quoted)
            at = child.end_byte
        if at < end:
            yield self._literal(text[at - offset : end - offset].decode(errors="replace"), quoted)

    def _literal(self, text: str, quoted: bool) -> Piece:
        escapes = r'\\(\n|["\\$`])' if quoted else r"\\(.|\n)"
        text = re.sub(escapes, lambda match: "" if match[1] == "\n" else match[1], text)
        return Piece(elements=(self._variables.spend(text),), quoted=quoted)

    def _expansion(self, node: "Node", quoted: bool) -> Iterator[Piece]:
        """Iterate over the parts of an expansion; an unknown one is one word as written."""
        if node.type == "arithmetic_expansion":
            number = self.number(node)
            yield self._of_text(f"$(({self._shown(node)}))" if number is None else str(number), quoted)
        elif node.type in ("command_substitution", "process_substitution"):
            output = self._substituted(node)
            command = re.search(r"[\w./-]+", text_of(node))
            opaque = Piece(elements=(f"$({command[0] if command else ''}…)",), quoted=quoted)
            yield opaque if output is None else self._of_text(output, quoted)
        else:
            yield from self._parameter(node, quoted)

    def _substituted(self, node: "Node") -> str | None:
        """Return the output of a substitution; None if unknown before a run."""
        if (nested := _NESTED.fullmatch(text_of(node))) is None:
            return self._output(node)
        number = self.calculated(nested[1])  # parsed as a subshell by the grammar
        return None if number is None else str(number)

    def calculated(self, expression: str) -> int | None:
        """Return the value of an expression in a text; None if unknown before a run."""
        root = parse_shell(f"(( {expression} ))", "arithmetic")[0]
        return self.number(root.named_children[0]) if root.named_children else None

    def _of_text(self, text: str, quoted: bool) -> Piece:
        return Piece(elements=(self._variables.spend(text),), quoted=quoted, split=not quoted)

    def _of_value(self, value: Value, quoted: bool) -> Piece:
        elements = [*value.values()] if isinstance(value, dict) else [value] if isinstance(value, str) else value
        return Piece(elements=tuple(map(self._variables.spend, elements)), quoted=quoted, split=not quoted)

    def _shown(self, node: "Node") -> str:
        """Return the text of unknown arithmetic: known numbers, else names."""
        if node.type in _EXPANSIONS[:2]:
            return self.text(node)
        if node.type == "command_substitution":
            nested = _NESTED.fullmatch(text_of(node))
            return "…" if nested is None else f"({nested[1].strip()})"
        if not node.children:
            name = text_of(node)
            value = self._number_of(node) if node.is_named else None
            return name if not node.is_named else f"${name}" if value is None else str(value)
        return "".join(self._shown(child) for child in node.children if child.type not in ("$((", "))", "$[", "]"))

    def _parameter(self, node: "Node", quoted: bool) -> Iterator[Piece]:
        """Iterate over the parts of ``$NAME`` or of ``${NAME...}``."""
        written = re.sub(r"\s+", "", text_of(node))
        inside = [child for child in node.children if child.type not in ("$", "${", "}")]
        prefix = ""
        if len(inside) > 1 and inside[0].type in ("!", "#"):
            prefix = inside.pop(0).type
        if not inside or inside[0].type not in ("variable_name", "special_variable_name", "subscript"):
            name = text_of(inside[0]) if inside else prefix
            yield self._of_text(self._variables.value("#") if name == "#" else written, quoted)  # type: ignore[arg-type]
            return
        name, value = self._named(inside[0])
        if len(inside) > 1 and inside[1].type in _DEFAULTS and not prefix:
            yield from self._with_default(node, inside[1], name, value, quoted)
        elif prefix == "#" and value is not None:
            yield self._of_text(str(len(value)), quoted)
        elif prefix == "!" and isinstance(value, str) and (target := self._variables.value(value)) is not None:
            yield self._of_value(target, quoted)
        elif prefix == "!" and isinstance(value, list | dict):
            yield self._of_value([*map(str, range(len(value)) if isinstance(value, list) else value)], quoted)
        elif value is None or prefix:
            yield Piece(elements=(written,), quoted=quoted)
        elif len(inside) == 1 or inside[1].type in (":?", "?"):
            joined = quoted and isinstance(value, list) and written.endswith(("[*]}", "$*", "{*}"))
            yield self._of_value(" ".join(value) if joined else value, quoted)
        elif isinstance(value, list) and inside[1].type == ":":
            first = [""] if name in _ELEMENTS else []  # position 0 is the script itself
            part = _slice([*first, *value], inside[1:])
            yield Piece(elements=(written,), quoted=quoted) if part is None else self._of_value(part, quoted)
        else:
            changed = self._changed(inside[1:], value)
            yield self._of_text(written if changed is None else changed, quoted)

    def _named(self, node: "Node") -> tuple[str, Value | None]:
        """Return the name of a variable, and its value or elements."""
        name = text_of(node)
        if node.type != "subscript":
            value = [*(self._variables.arguments or ())] if name in _ELEMENTS else self._variables.value(name)
            if name in _ELEMENTS or not isinstance(value, list | dict):
                return name, value
            return name, next(iter(value), "") if isinstance(value, list) else value.get("0", "")
        name, index = text_of(node.children[0]), node.child_by_field_name("index")
        value = self._variables.value(name)
        key = "" if index is None else text_of(index) if text_of(index) in _ELEMENTS else self.text(index)
        if value is None or key in _ELEMENTS:
            return name, [value] if isinstance(value, str) else value
        if isinstance(value, dict):
            return name, None if UNKNOWN.search(key) else value.get(key, "")
        place = None if index is None else self._number_of(index)
        elements = [value] if isinstance(value, str) else value
        return name, None if place is None else elements[place] if -len(elements) <= place < len(elements) else ""

    def _with_default(
        self, node: "Node", operator: "Node", name: str, value: Value | None, quoted: bool
    ) -> Iterator[Piece]:
        """Iterate over the parts of ``${NAME:-default}`` and similar forms."""
        if value is None and name in self._variables.unknown:
            yield Piece(elements=(f"${name}",), quoted=quoted)
            return
        present = value is not None and (value != "" or not operator.type.startswith(":"))
        if operator.type.endswith("+") == present:
            yield from self._default(node, operator, name, quoted)
        else:
            yield self._of_value(value if present and value else "", quoted)

    def _default(self, node: "Node", operator: "Node", name: str, quoted: bool) -> Iterator[Piece]:
        after = [child for child in node.children if child.start_byte >= operator.end_byte and child.type != "}"]
        pieces = [*self._sequence(after, operator.end_byte, node.end_byte - 1, quoted, node)]
        if operator.type.endswith("=") and not name.isdecimal():
            self._variables.assign(name, "".join(piece.text for piece in pieces))
        for piece in pieces or [self._of_text("", quoted)]:
            yield Piece(elements=piece.elements, quoted=piece.quoted, split=not piece.quoted)

    def _changed(self, rest: Sequence["Node"], value: Value) -> str | None:
        """Return a value with a part removed, replaced or in capitals; None for an unknown value."""
        operator, arguments = rest[0].type, [node for node in rest[1:] if node.is_named]
        if not isinstance(value, str):
            return None
        if operator in _CASES:
            return _CASES[operator](value)
        if operator == ":":
            part = _slice([*value], rest)
            return None if part is None else "".join(part)
        if not arguments or UNKNOWN.search(pattern := self.pattern(arguments[0])):
            return None
        if operator in ("#", "##", "%", "%%"):
            return without(value, pattern, operator)
        if operator in ("/", "//"):
            compiled = re.compile(_expression(pattern))
            put = self.text(arguments[1]) if len(arguments) > 1 else ""
            return compiled.sub(lambda match: put, value, count=0 if operator == "//" else 1)
        return None


_CASES: dict[str, Callable[[str], str]] = {
    "^^": str.upper,
    ",,": str.lower,
    "^": lambda text: text[:1].upper() + text[1:],
    ",": lambda text: text[:1].lower() + text[1:],
}


def _slice(elements: list[str], rest: Sequence["Node"]) -> list[str] | None:
    """Return the elements of ``:start:length``; None if unknown before a run."""
    places = [whole_number(text_of(node)) for node in rest if node.is_named]
    start, length = (*places, None, None)[:2]
    if start is None or None in places or (length is not None and length < 0):
        return None
    return elements[start:][:length]


def without(value: str, pattern: str, operator: str) -> str:
    """Return a text without the shortest (``#``, ``%``) or longest (``##``, ``%%``) match at its beginning or end.

    >>> without("--tp=4", "*=", "#"), without("a/b.c.d", ".*", "%"), without("a/b.c.d", ".*", "%%")
    ('4', 'a/b.c', 'a/b')
    """
    places = range(len(value) + 1) if operator in ("#", "%%") else range(len(value), -1, -1)
    for at in places:
        part, left = (value[:at], value[at:]) if operator[0] == "#" else (value[at:], value[:at])
        if fnmatch.fnmatchcase(part, pattern):
            return left
    return value


def _expression(pattern: str) -> str:
    """Return a pattern of file names as a regular expression that may match anywhere."""
    return fnmatch.translate(pattern).removesuffix(r"\Z").removesuffix(r"\z")


def _fields(pieces: Iterator[Piece]) -> list[str]:
    """Join the parts of one word, and split it at blanks of unquoted expansions."""
    fields, kept = [""], [False]
    for piece in pieces:
        elements = [re.split(r"\s+", text) for text in piece.elements] if piece.split else [*zip(piece.elements)]
        for at, part in enumerate(part for element in elements for part in element):
            if at:
                fields.append("")
                kept.append(False)
            fields[-1] += part
            kept[-1] |= piece.quoted or bool(part)
    return [field for field, keep in zip(fields, kept, strict=True) if keep]
