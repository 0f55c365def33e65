"""Imports run search -> simulator -> spaces and never back, absolutely, and the light rooms stay light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {"spaces": {"spaces"}, "simulator": {"spaces", "simulator"}, "search": {"spaces", "simulator", "search"}}
FILES = sorted(path for room in MAY_IMPORT for path in (ROOT / room).rglob("*.py"))
HEAVY = ("ray", "optuna", "torch", "networkx", "pandas", "plotly", "scipy")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (level, dotted name) of every import statement of a file, those inside functions included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from ((node.level, f"{module}.{alias.name}") for alias in node.names)


def test_there_are_files_to_look_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(MAY_IMPORT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_of(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    for level, name in imported(path):
        assert level == 0, f"relative import of {name}"
        first, *rest = name.split(".")
        assert first not in MAY_IMPORT, f"{name} names a folder; import forerun.{name}"
        if first == "forerun":
            assert rest[0] in MAY_IMPORT[room], f"{room} may not import {name}"


DOWNWARDS = ("search",)
"""Packages in which imports run downwards: no circle among files or folders, those for types alone included."""


def module_of(path: Path) -> str:
    """Return the dotted name of a file below the root of the repository."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(package: str) -> "nx.DiGraph[str]":
    """Return which files of a package import which, by dotted name."""
    files = {module_of(path): path for path in FILES if path.is_relative_to(ROOT / package)}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name, path in files.items():
        for _, full in imported(path):
            target = full.removeprefix("forerun.")
            target = target if target in files else target.rpartition(".")[0]
            if target in files and target != name:
                graph.add_edge(name, target)
    return graph


def folder_of(name: str) -> str:
    """Return the folder of a file two levels deep or more, and any other file itself."""
    parts = name.split(".")
    return ".".join(parts[:2]) if (ROOT / Path(*parts[:2])).is_dir() else name


@pytest.mark.parametrize("package", DOWNWARDS)
@pytest.mark.parametrize("what", ["files", "folders"])
def test_imports_have_no_circle(package: str, what: str) -> None:
    graph = import_graph(package)
    if what == "folders":
        edges = {(folder_of(one), folder_of(other)) for one, other in graph.edges}
        graph = nx.DiGraph([(one, other) for one, other in edges if one != other])
    circles = [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]

    assert graph.number_of_edges() > 20
    assert circles == []


@pytest.mark.parametrize(
    "module", ["forerun.spaces", "forerun.spaces.models", "forerun.simulator", "forerun.search.cli"]
)
def test_importing_it_brings_in_nothing_heavy(module: str) -> None:
    script = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert "forerun" in loaded
    assert not set(HEAVY) & set(loaded)


def test_spaces_alone_brings_in_no_other_room() -> None:
    script = "import sys, forerun.spaces; print(*(name for name in sys.modules if name.startswith('forerun.')))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()

    assert {name.split(".")[1] for name in loaded} == {"spaces"}
