"""Stand-ins for packages that need a GPU to install, so that what only describes a run can be imported without them."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class _StandIn(types.ModuleType):
    """A module that has every name: classes where it begins with a capital, else further modules."""

    __version__ = "2.12.0"
    __path__: list[str] = []  # noqa: RUF012  # of the module, which makes it a package

    def __call__(self, *_: Any, **__: Any) -> "_StandIn":
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {}) if name[0].isupper() else _StandIn(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        asked = any(fullname == name or fullname.startswith(name + ".") for name in self.names)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if asked else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


@contextmanager
def stand_ins(*names: str) -> Iterator[None]:
    """Let modules of these names, and all below them, be imported as stand-ins."""
    finder = _Finder(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
