"""Whole-number arithmetic of a shell: ``$(( ))``, ``(( ))`` and ``let``."""

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from forerun.search.formats.shell.tree import text_of

if TYPE_CHECKING:
    from tree_sitter import Node

_LARGEST = 1 << 62
_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1),
    "**": lambda a, b: a**b if 0 <= b < 64 else _LARGEST,
    "<<": lambda a, b: a << b if 0 <= b < 64 else _LARGEST,
    ">>": lambda a, b: a >> b if 0 <= b < 64 else _LARGEST,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda a, b: a != 0 and b != 0,
    "||": lambda a, b: a != 0 or b != 0,
}

Read = Callable[["Node"], int | None]
Write = Callable[[str, int | None], None]


def arithmetic(node: "Node", read: Read, write: Write) -> int | None:
    """Return the value of an expression, None if unknown before a run.

    Parameters
    ----------
    node
        The expression, or its brackets.
    read
        Function that returns the value of a name, a number or an expansion.
    write
        Function that assigns a variable.
    """
    parts = node.named_children
    match node.type:
        case "number" | "variable_name" | "word" | "string" | "simple_expansion" | "expansion" | "concatenation":
            return read(node)
        case "command_substitution" | "subscript":
            return read(node)
        case "arithmetic_expansion" | "compound_statement" | "parenthesized_expression":
            values = [arithmetic(part, read, write) for part in parts]
            return values[-1] if values else None
        case "unary_expression" | "postfix_expression":
            return _unary(node, read, write)
        case "ternary_expression" if len(parts) == 3:
            condition = arithmetic(parts[0], read, write)
            return None if condition is None else arithmetic(parts[1 if condition else 2], read, write)
        case "binary_expression" | "variable_assignment" if len(parts) == 2:
            symbol = next((child.type for child in node.children if not child.is_named), "=")
            return _binary(symbol, parts[0], arithmetic(parts[1], read, write), read, write)
        case _:
            return None


def _unary(node: "Node", read: Read, write: Write) -> int | None:
    symbol = next((child.type for child in node.children if child.type in ("-", "+", "!", "++", "--")), "")
    operand = next((child for child in node.named_children if child.type != "test_operator"), None)
    value = None if operand is None else arithmetic(operand, read, write)
    if operand is not None and symbol in ("++", "--"):
        after = None if value is None else value + (1 if symbol == "++" else -1)
        write(text_of(operand), after)
        return value if node.type == "postfix_expression" else after
    if value is None:
        return None
    return {"-": -value, "!": int(not value)}.get(symbol, value)


def _binary(symbol: str, left: "Node", right: int | None, read: Read, write: Write) -> int | None:
    assigns = symbol.endswith("=") and symbol not in _OPERATIONS
    first = right if symbol == "=" else arithmetic(left, read, write)
    value = right if symbol == "=" else _operation(symbol.removesuffix("=") if assigns else symbol, first, right)
    if assigns:
        write(text_of(left).removeprefix("$"), value)
    return value


def _operation(symbol: str, first: int | None, second: int | None) -> int | None:
    decides = {"&&": 0, "||": 1}.get(symbol)
    if decides is not None and any(value is not None and bool(value) == decides for value in (first, second)):
        return decides
    if first is None or second is None or symbol not in _OPERATIONS or (symbol in ("/", "%") and not second):
        return None
    value = int(_OPERATIONS[symbol](first, second))
    return value if abs(value) < _LARGEST else None
