"""The snapshots that prove a refactor: they cover every verb, and tell a dropped key from an added one."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from forerun.search.cli.registry import VERBS

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "snapshots"


@pytest.fixture
def differences() -> ModuleType:
    spec = importlib.util.spec_from_file_location("differences", FOLDER / "differences.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_every_verb_has_a_case() -> None:
    lines = [line for line in (FOLDER / "cases.txt").read_text().splitlines() if line and not line.startswith("#")]
    names, words = zip(*(line.split(": ", 1) for line in lines), strict=True)

    assert len(set(names)) == len(names)
    assert {verb.name for verb in VERBS} == {command.split()[0] for command in words}


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, "added"),
        ({"a": 1, "b": 2}, {"a": 1}, "dropped"),
        ({"a": {"b": 1.0}}, {"a": {"b": 1.1}}, "changed"),
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, "rounding"),
        ({"a": 1}, {"a": True}, "changed"),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1}, {"b": 2}]}, "changed"),
        ({"notes": ["x", "z"]}, {"notes": ["x", "y", "z"]}, "added"),
        ({"notes": ["x", "y"]}, {"notes": ["y", "x"]}, "changed"),
        ({"notes": ["x", "y"]}, {"notes": ["y"]}, "dropped"),
    ],
)
def test_what_differs_is_named_by_its_kind(
    differences: ModuleType, tmp_path: Path, old: object, new: object, kind: str
) -> None:
    for name, value in (("old", old), ("new", new)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "case.json").write_text(json.dumps(value))

    (found,) = differences.compare(tmp_path / "old", tmp_path / "new")

    assert found.kind == kind
    assert differences.report([found], every=False) == (kind != "added")


def test_equal_snapshots_differ_in_nothing(differences: ModuleType, tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "case.json").write_text('{"a": [1, 2.5, "x"], "b": {"c": null}}')

    assert differences.compare(tmp_path / "old", tmp_path / "new") == []
