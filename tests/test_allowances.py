"""Allowed violations of lint rules are those that exist: a list that could be shorter fails."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _shrink() -> ModuleType:
    path = Path(__file__).parent / "allowances" / "shrink.py"
    spec = importlib.util.spec_from_file_location("forerun_allowances", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


shrink = _shrink()
FIX = "violations went: run `make allowances`, which makes the list shorter"


def test_files_break_the_rules_that_they_may_and_no_others() -> None:
    rules, total = shrink.broken_rules()
    allowed, most = shrink.allowed_rules()
    assert total <= most
    assert rules == allowed, FIX


def test_docstrings_begin_with_a_verb_and_a_noun() -> None:
    """Files that still have banned beginnings have no more of them than are allowed."""
    counts, allowed = shrink.poor_docstrings(), shrink.allowed_docstrings()
    more = {name: count for name, count in counts.items() if count > allowed.get(name, 0)}
    assert not more, "write an imperative verb and a noun phrase, not 'Return what' or 'What'"
    assert counts == allowed, FIX


@pytest.mark.parametrize(
    ("docstring", "poor"),
    [
        ("Return what a row costs.", True),
        ("What a row costs.", True),
        ("How layers are dealt to stages.", True),
        ("Yield which laws a candidate breaks.", True),
        ("Return by how much a step is longer.", True),
        ("Return the cost of a row.", False),
        ("Whether a row fits.", False),
        ("However long a step takes.", False),
        ("Combine what passes and replicas cost.", False),
    ],
)
def test_banned_beginnings(docstring: str, poor: bool) -> None:
    assert shrink.is_poor(docstring) is poor
    assert shrink.docstrings(f'def f():\n    """{docstring}"""\n') == [docstring]


def test_the_lists_may_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrink, "LINT", tmp_path / "lint.toml")
    monkeypatch.setattr(shrink, "DOCSTRINGS", tmp_path / "docstrings.json")
    monkeypatch.setattr(shrink, "broken_rules", lambda: ({"a.py": ["D205"]}, 3))
    monkeypatch.setattr(shrink, "poor_docstrings", lambda: {"a.py": 1})
    shrink.write({"a.py": ["D205"]}, 2, {"a.py": 1})
    with pytest.raises(SystemExit, match="3 violations"):
        shrink.main()
    shrink.write({"a.py": ["D205"]}, 3, {})
    with pytest.raises(SystemExit, match="more docstrings"):
        shrink.main()
    shrink.write({"a.py": ["D205"], "b.py": ["D401"]}, 5, {"a.py": 2})
    shrink.main()
    assert (shrink.allowed_rules(), shrink.allowed_docstrings()) == (({"a.py": ["D205"]}, 3), {"a.py": 1})
