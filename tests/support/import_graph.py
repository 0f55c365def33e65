"""Who imports whom, read from the source: files of the three packages and the arrows between them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import networkx
from sources import source

PACKAGES = ("spaces", "simulator", "search")
"""The top folders, lowest first: each imports itself and those before it."""


@dataclass(frozen=True, kw_only=True)
class ImportGraph:
    """The files of the packages under ``root``, named like ``search/api.py``."""

    root: Path

    @cached_property
    def files(self) -> Mapping[str, Path]:
        """Return the path of every module, by its name without ``forerun.``; a package is its ``__init__.py``."""
        found = {}
        for path in sorted(path for package in PACKAGES for path in (self.root / package).rglob("*.py")):
            parts = path.relative_to(self.root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    @cached_property
    def arrows(self) -> networkx.DiGraph:
        """Return the graph of files: an arrow runs from one that imports to the one that defines what is imported."""
        graph = networkx.DiGraph()
        for path in self.files.values():
            graph.add_node(self.name(path))
            for item in source(path).imports:
                target = self._home(item.module, item.name)
                if target is not None and target != path:
                    graph.add_edge(self.name(path), self.name(target))
        return graph

    def name(self, path: Path) -> str:
        """Return the name of a file in the graph."""
        return path.relative_to(self.root).as_posix()

    def folders(self) -> Iterator[networkx.DiGraph]:
        """Yield for every folder the graph of what is in it: its files, and its folders with all that is in them.

        The attribute ``files`` of an arrow has the arrows between files that it stands for.
        """
        folders = {parent for path in self.files.values() for parent in path.relative_to(self.root).parents}
        for folder in sorted(folder.as_posix() for folder in folders if folder != Path(".")):
            graph = networkx.DiGraph()
            for pair in self.arrows.edges:
                if all(name.startswith(f"{folder}/") for name in pair):
                    one, other = (_child(folder, name) for name in pair)
                    if one != other:
                        graph.add_edge(one, other)
                        graph.edges[one, other].setdefault("files", []).append(pair)
            yield graph

    def _home(self, module: str, name: str) -> Path | None:
        """Return the file that defines a name, through the ``__init__.py`` of packages that hand it on."""
        if module.split(".")[0] != "forerun":
            return None
        module = module.removeprefix("forerun").removeprefix(".")
        inner = f"{module}.{name}" if module else name
        if inner in self.files:
            return self.files[inner]
        path = self.files[module]
        if path.name == "__init__.py" and name:
            for item in source(path).imports:
                if item.name == name and item.module.startswith("forerun."):
                    return self._home(item.module, name)
        return path


def _child(folder: str, name: str) -> str:
    """Return what of a folder holds a file: the file itself, or the folder below that it is in."""
    first, *rest = name.removeprefix(f"{folder}/").split("/")
    return f"{folder}/{first}{'/' if rest else ''}"


def circles(graph: networkx.DiGraph) -> set[tuple[str, str]]:
    """Return the arrows that lie on a circle."""
    parts = [part for part in networkx.strongly_connected_components(graph) if len(part) > 1]
    return {arrow for part in parts for arrow in graph.subgraph(part).edges}
