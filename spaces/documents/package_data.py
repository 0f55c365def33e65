"""Loader of the data files installed with the package: tables and catalogues.

Unlike users' documents, data files may have anchors, aliases and merge keys (``<<``). Duplicate keys raise ValueError,
since YAML loaders silently keep the last one.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import yaml

_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


def package_text(package: str, *path: str) -> str:
    """Return the text of a data file; ``path``: folders and name inside ``package``."""
    return files(package).joinpath(*path).read_text(encoding="utf-8")


def package_names(package: str, *folder: str) -> tuple[str, ...]:
    """Return the sorted names, without suffix, of the YAML files of one folder."""
    entries = (entry.name for entry in files(package).joinpath(*folder).iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in entries if name.endswith(".yaml")))


def package_yaml(package: str, *path: str) -> Any:
    """Return the data of a YAML file of the package."""
    return plain_data(package_text(package, *path), source="/".join((package.replace(".", "/"), *path)))


def plain_data(text: str, *, source: str) -> Any:
    """Return the data of a YAML text; ``source``: its name in errors."""
    loader = _LOADER(text)
    try:
        root = loader.get_single_node()
        # Before construction, which merges `<<` into the mappings: a key may override a merged one.
        for mapping in _mappings(root):
            _check_keys(mapping, source)
        return None if root is None else loader.construct_document(root)
    finally:
        loader.dispose()


def _mappings(root: yaml.Node | None) -> Iterator[yaml.MappingNode]:
    """Yield every mapping below a node once, since aliases refer to the same node."""
    waiting, seen = [root], set[int]()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            yield node
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value


def _check_keys(mapping: yaml.MappingNode, source: str) -> None:
    lines: dict[tuple[str, str], int] = {}
    for key, _ in mapping.value:
        line, name = key.start_mark.line + 1, (key.tag, str(key.value))
        if name in lines:
            raise ValueError(f"{source}, line {line}: key {key.value!r} is given twice (first on line {lines[name]})")
        lines[name] = line
