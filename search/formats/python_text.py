"""Settings of a Python file from constants, keyword arguments and attribute assignments; it is never run.

``cfg.model.layers = 4`` and ``build(model=Model(layers=4))`` are both the setting ``model.layers``. Arithmetic of
constants is evaluated (``8 * 4096``), names of constants stand for their values, a member of an enumeration for its
name (``DataParallelType.hsdp`` is ``hsdp``). All other code is ignored.
"""

import ast
import warnings
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.settings import flatten
from forerun.spaces.errors import RequestError

LARGEST = 1 << 62
DEEPEST = 20
MOST_BYTES = 1 << 19
"""Bytes of a file at most: a tree of Python takes four hundred times as many."""
CALLED = "()"
"""Key of the called name in a call's settings."""


class _Unknown:
    """A value unknown before a run."""


UNKNOWN = _Unknown()


def parse_python(text: str, source: str) -> ast.Module:
    """Return a file as a tree.

    Raises
    ------
    RequestError
        The file is not Python, or too long.
    """
    if (size := len(text.encode())) > MOST_BYTES:
        raise RequestError(f"{source} has {size:,} bytes, but a configuration in Python at most {MOST_BYTES:,}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes and comparisons in the file
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise RequestError(f"{source}{line}: the file is not Python") from None


class PythonReader:
    """Reader of a module: its constants first, then each function on demand."""

    def __init__(self, tree: ast.Module) -> None:
        self.functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self.constants: dict[str, Any] = {}
        self._run(tree.body, self.constants, 0)

    def function(self, name: str, given: Mapping[str, Any] | None = None, depth: int = 0) -> dict[str, Any]:
        """Return the settings that a function returns: nested mappings; empty if they are unknown before a run."""
        node = self.functions[name]
        names = {**self.constants}
        arguments = node.args
        positional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
        pairs = [
            *zip(positional, arguments.defaults, strict=True),
            *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
        ]
        names |= {argument.arg: self.value(default, names, depth) for argument, default in pairs if default is not None}
        names |= given or {}
        result = self._run(node.body, names, depth)
        return result if isinstance(result, dict) else {}

    def value(self, node: ast.expr, names: Mapping[str, Any], depth: int = 0) -> Any:
        """Return the value of an expression, ``UNKNOWN`` if it is unknown before a run."""
        if depth > DEEPEST:
            return UNKNOWN
        match node:
            case ast.Constant():
                return node.value if not isinstance(node.value, bytes) else UNKNOWN
            case ast.Name():
                return names.get(node.id, UNKNOWN)
            case ast.Attribute():
                inside = self.value(node.value, names, depth + 1)
                if isinstance(inside, dict):
                    return inside.get(node.attr, UNKNOWN)
                return node.attr if inside is UNKNOWN and _enumeration(node) else UNKNOWN
            case ast.List() | ast.Tuple():
                return [self.value(item, names, depth + 1) for item in node.elts]
            case ast.Dict():
                return self._mapping(node, names, depth + 1)
            case ast.Call():
                return self._call(node, names, depth + 1)
            case ast.UnaryOp(op=ast.USub()):
                inside = self.value(node.operand, names, depth + 1)
                return -inside if isinstance(inside, int | float) else UNKNOWN
            case ast.BinOp():
                return _arithmetic(
                    node.op, self.value(node.left, names, depth + 1), self.value(node.right, names, depth + 1)
                )
            case _:
                return UNKNOWN

    def _mapping(self, node: ast.Dict, names: Mapping[str, Any], depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item, names, depth)
            name = UNKNOWN if key is None else self.value(key, names, depth)
            if isinstance(name, str):
                mapping[name] = value
            elif key is None and isinstance(value, dict):
                mapping |= value
        return mapping

    def _call(self, node: ast.Call, names: Mapping[str, Any], depth: int) -> Any:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "Config" and isinstance(node.func, ast.Attribute):  # of a class, which identifies the configuration
            name = f"{getattr(node.func.value, 'id', getattr(node.func.value, 'attr', ''))}.Config"
        positional = [self.value(argument, names, depth) for argument in node.args]
        if name in ("int", "float", "str") and len(positional) == 1 and isinstance(positional[0], int | float):
            return int(positional[0]) if name == "int" and abs(positional[0]) < LARGEST else positional[0]
        arguments: dict[str, Any] = {}
        if name in ("replace", "deepcopy", "copy") and positional and isinstance(positional[0], dict):
            arguments |= positional[0]
        for keyword in node.keywords:
            value = self.value(keyword.value, names, depth)
            if keyword.arg is None:
                arguments |= value if isinstance(value, dict) else {}
            else:
                arguments[keyword.arg] = value
        if isinstance(node.func, ast.Name) and name in self.functions and depth < DEEPEST:
            return self.function(name, arguments, depth + 1) or UNKNOWN
        literals = [value for value in positional if isinstance(value, str | int)]
        return {CALLED: name, **({"0": literals[0]} if literals and "mode" not in arguments else {}), **arguments}

    def _run(self, body: list[ast.stmt], names: dict[str, Any], depth: int) -> Any:
        """Follow statements in order; an undecidable branch is skipped. Return the value of the return statement."""
        for statement in body:
            if isinstance(statement, ast.Return):
                return UNKNOWN if statement.value is None else self.value(statement.value, names, depth + 1)
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if isinstance(statement, ast.AnnAssign):
                targets = [statement.target]
            value = getattr(statement, "value", None)
            for target in targets:
                if value is not None:
                    _assign(target, self.value(value, names, depth + 1), names)
        return UNKNOWN


def _enumeration(node: ast.Attribute) -> bool:
    """Whether an attribute reads like a member of an enumeration or of a module of types (``torch.bfloat16``)."""
    return isinstance(node.value, ast.Name | ast.Attribute)


def _assign(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    """Set ``name`` or ``name.inner.name`` (as mappings in mappings)."""
    path: list[str] = []
    while isinstance(target, ast.Attribute):
        path.insert(0, target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        return
    if not path:
        names[target.id] = value
        return
    inside = names.get(target.id)
    inside = names[target.id] = dict(inside) if isinstance(inside, dict) else {}
    for part in path[:-1]:
        below = inside.get(part)
        inside[part] = dict(below) if isinstance(below, dict) else {}
        inside = inside[part]
    inside[path[-1]] = value


def _arithmetic(operator: ast.operator, left: Any, right: Any) -> Any:
    if not all(isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < LARGEST for x in (left, right)):
        return UNKNOWN
    match operator:
        case ast.Add():
            result = left + right
        case ast.Sub():
            result = left - right
        case ast.Mult():
            result = left * right
        case ast.FloorDiv() if right:
            result = left // right
        case ast.Div() if right:
            result = left / right
        case ast.Pow() if abs(left) <= 1 << 10 and 0 <= right <= 60:
            result = left**right
        case _:
            return UNKNOWN
    return result if abs(result) < LARGEST else UNKNOWN


def settings_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings by dotted name, without unknown values."""
    flat = flatten({key: value for key, value in _known(values).items()})
    return {key: value for key, value in flat.items() if not key.endswith(CALLED) and value != {}}


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _known(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
        if value is not UNKNOWN and not (isinstance(value, list) and UNKNOWN in value)
    }


def open_settings(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return the dotted names of settings with unknown values."""
    names: list[str] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            names += open_settings(value, f"{prefix}{key}.")
        elif value is UNKNOWN:
            names.append(f"{prefix}{key}")
    return names


def keywords(tree: ast.Module, reader: PythonReader) -> dict[str, Any]:
    """Return every keyword argument of a file by its name, prefixed by the enclosing keyword (``ac_config.mode``).

    For scripts that build their configuration in several functions: calls are distinguished by names.
    """
    values: dict[str, Any] = {}
    inside: set[ast.keyword] = set()
    for node in ast.walk(tree):  # breadth first: a call before its arguments
        if isinstance(node, ast.keyword | ast.Assign) and isinstance(node.value, ast.Call):
            inside |= set(node.value.keywords)
        if isinstance(node, ast.keyword) and node.arg is not None and node not in inside:
            _take(values, node.arg, node.value, reader)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            _take(values, node.targets[0].id, node.value, reader)
    return values


def _take(values: dict[str, Any], name: str, node: ast.expr, reader: PythonReader) -> None:
    value = reader.value(node, reader.constants)
    if isinstance(value, dict):
        values |= {f"{name}.{key}": inner for key, inner in settings_of(value).items()}
        if isinstance(value.get(CALLED), str):
            values.setdefault(name, value[CALLED])
    elif value is not UNKNOWN and not (isinstance(value, list) and UNKNOWN in value):
        values[name] = value
