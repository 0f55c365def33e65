"""A comprehension in a nested function never binds a name of an enclosing function: Python 3.12.1 inlines it and raises
UnboundLocalError (python/cpython#113010)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "docs", "public", "search", "simulator", "spaces", "tests")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
"""What Python 3.12 inlines; generator expressions stay functions of their own."""


def shadowing(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and name of every comprehension variable that shadows a variable of an enclosing function."""
    return sorted(set(_in_scope(tree, names=frozenset(), outer=frozenset())))


def _in_scope(node: ast.AST, names: frozenset[str], outer: frozenset[str]) -> Iterator[tuple[int, str]]:
    """``names``: variables of the innermost function; ``outer``: those of the functions around it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            own = frozenset(_bound(child))
            yield from _in_scope(child, names=own, outer=(outer | names) - own)
            continue
        if isinstance(child, COMPREHENSIONS):
            for generator in child.generators:
                yield from ((child.lineno, name) for name in _stored(generator.target) if name in outer)
        yield from _in_scope(child, names, outer)


def _bound(function: ast.AST) -> Iterator[str]:
    """Names that a function binds itself: parameters and assignments, not those of functions inside it."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.arg):
            yield node.arg
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, (*COMPREHENSIONS, *FUNCTIONS, ast.GeneratorExp)):
            continue
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            waiting += ast.iter_child_nodes(node)


def _stored(target: ast.AST) -> list[str]:
    return [node.id for node in ast.walk(target) if isinstance(node, ast.Name)]


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_comprehension_shadows_an_enclosing_function(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, name in shadowing(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found, "rename the variable of the comprehension"


def test_the_crash_of_python_3_12_1_is_found() -> None:
    text = """
def outer(name):
    def inner(rows):
        short = {name: row for name, row in rows}
        return [f"{row} of {name}" for row in short]
    return inner
"""
    assert shadowing(ast.parse(text)) == [(4, "name")]
    assert shadowing(ast.parse(text.replace("def inner(rows)", "def inner(rows, name)"))) == []
