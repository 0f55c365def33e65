"""Imports, classes and docstrings of modules, each read and parsed once however many tests look at them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("public", "search", "simulator", "spaces")
"""Folders of the product."""


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported name: ``module`` follows ``from`` (or is all of ``import``), ``name`` may be a module too."""

    level: int
    module: str
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class Source:
    """A parsed module: its imports wherever they are, its top classes, and pairs of a definition and its docstring."""

    path: Path
    imports: tuple[Import, ...]
    classes: tuple[str, ...]
    docstrings: tuple[tuple[str, str], ...]


@cache
def source(path: Path) -> Source:
    """Parse a module, or give the result of the first time."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imports: list[Import] = []
    docstrings: list[tuple[str, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                imports += (Import(level=0, module=alias.name) for alias in node.names)
            case ast.ImportFrom():
                imports += (Import(level=node.level, module=node.module or "", name=alias.name) for alias in node.names)
            case ast.Module():
                docstrings.append(("module", ast.get_docstring(node) or ""))
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                docstrings.append((node.name, ast.get_docstring(node) or ""))
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef))
    return Source(path=path, imports=tuple(imports), classes=classes, docstrings=tuple(docstrings))


def product() -> Iterator[Source]:
    """Yield every module of the product."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield source(path)
