"""A public class name means one thing: no two modules define the same one."""

from collections import defaultdict

from sources import ROOT, product

TWO = {"Split"}
"""How layers are dealt to stages, and how the devices of an operator graph share it."""


def test_public_classes_have_names_of_their_own() -> None:
    defined: dict[str, list[str]] = defaultdict(list)
    for module in product():
        for name in module.classes:
            if not name.startswith("_"):
                defined[name].append(str(module.path.relative_to(ROOT)))
    assert len(defined) > 500
    assert {name: paths for name, paths in defined.items() if len(paths) > 1 and name not in TWO} == {}
