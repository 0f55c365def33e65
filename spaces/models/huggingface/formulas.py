"""Formulas over the fields of a configuration, for parameters and widths in the tables of families.

A formula is an expression in Python notation, or assignments followed by an expression in the last line. A name is
given by the caller, assigned, or a field of the configuration: a required integer (``hidden_size``,
``vision_config.output_channels``). Functions read other fields, named by their first argument:

- ``size(field, default)``: an integer, or the default; ``size(field, default, 0)`` accepts a zero in the file
- ``optional(field)``: an integer, or 0; ``optional(field, 0)`` also accepts a zero
- ``number(field, default)``, ``flag(field, default)``, ``text(field)``: a positive number, a boolean, a text
- ``length(field)``, ``total(field)``: entries of a list of integers, and their sum; ``length(field, str)``
- ``entries(field)``: the same length for a field that may also be a single number
- ``given(field)``: whether the configuration has the field
- ``linear(inputs, outputs)``: weights and biases of a linear layer
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeAlias

from forerun.spaces.models.huggingface.fields import Fields

Count: TypeAlias = Callable[..., int]
"""Function for a number of parameters or columns: a formula, or Python code."""

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = MappingProxyType(
    {
        ast.Add: operator.add,
        ast.Sub: operator.sub,
        ast.Mult: operator.mul,
        ast.Div: operator.truediv,
        ast.FloorDiv: operator.floordiv,
        ast.Mod: operator.mod,
        ast.Pow: operator.pow,
        ast.USub: operator.neg,
        ast.Eq: operator.eq,
        ast.GtE: operator.ge,
    }
)


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula, called with the fields of a configuration and the values of further names."""

    text: str

    def __call__(self, fields: Fields, **names: int) -> int:
        """Compute the value for one configuration, a number or a boolean."""
        *assignments, last = _statements(self.text)
        scope = _Scope(fields, dict(names))
        for one in assignments:
            scope.names[one.targets[0].id] = scope.value(one.value)
        value = scope.value(last.value)
        return value if isinstance(value, bool) else int(value)


@cache
def _statements(text: str) -> tuple[Any, ...]:
    return tuple(ast.parse(text).body)


@dataclass(frozen=True, slots=True)
class _Scope:
    """The names known in one evaluation."""

    fields: Fields
    names: dict[str, Any]

    def value(self, node: Any) -> Any:
        """Compute a node of the syntax tree."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in self.names:
                return self.names[name]
            case ast.Name() | ast.Attribute():
                fields, name = self._field(node)
                return fields.size(name)
            case ast.BinOp(left=left, op=op, right=right) | ast.Compare(left=left, ops=[op], comparators=[right]):
                return _OPERATORS[type(op)](self.value(left), self.value(right))
            case ast.UnaryOp(op=op, operand=operand):
                return _OPERATORS[type(op)](self.value(operand))
            case ast.BoolOp(op=ast.Or(), values=values):
                return next(filter(None, map(self.value, values)), 0)
            case ast.IfExp(test=test, body=body, orelse=otherwise):
                return self.value(body if self.value(test) else otherwise)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._call(name, args)
        raise ValueError(f"a formula cannot have {ast.unparse(node)}")

    def _call(self, function: str, args: list[Any]) -> Any:
        if function in _FUNCTIONS:
            return _FUNCTIONS[function](*map(self.value, args))
        fields, name = self._field(args[0])
        if function == "length":
            kind = {"int": int, "str": str, "list": list}[args[1].id if len(args) > 1 else "int"]
            return len(fields.listed(name, kind) or ())
        return _READERS[function](fields, name, *map(self.value, args[1:]))

    def _field(self, node: Any) -> tuple[Fields, str]:
        """Return the configuration and the field of a name, nested where the name has a dot."""
        if isinstance(node, ast.Attribute):
            part: Any = node.value
            return self.fields.parts[part.id], node.attr
        return self.fields, node.id


def linear(inputs: int, outputs: int) -> int:
    """Count the weights and biases of a linear layer."""
    return (inputs + 1) * outputs


_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType({"linear": linear, "int": int})
_READERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "size": lambda fields, name, default=None, least=1: fields.size(name, default, least=least),
        "optional": lambda fields, name, least=1: fields.optional_size(name, least=least) or 0,
        "number": lambda fields, name, default: fields.number(name, default),
        "flag": lambda fields, name, default=False: fields.flag(name, default),
        "text": lambda fields, name: fields.text(name),
        "entries": lambda fields, name: len(fields.listed_or_none(name, int) or ()),
        "total": lambda fields, name: sum(fields.listed(name, int) or ()),
        "given": lambda fields, name: fields.given(name),
    }
)
