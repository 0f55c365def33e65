"""A public class name means one thing: no two modules define the same one."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
TWO = {"Split"}
"""How layers are dealt to stages, and how the devices of an operator graph share it."""


def test_public_classes_have_names_of_their_own() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for package in ("public", "search", "simulator", "spaces"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    defined[node.name].append(str(path.relative_to(ROOT)))
    assert len(defined) > 500
    assert {name: paths for name, paths in defined.items() if len(paths) > 1 and name not in TWO} == {}
