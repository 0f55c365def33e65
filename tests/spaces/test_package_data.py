"""Data files of the package: one loader, and no key twice."""

import re
from pathlib import Path

import pytest

from forerun.spaces.documents.package_data import package_names, package_yaml, plain_data

ROOT = Path(__file__).parents[2]
READERS = {"spaces/documents/package_data.py", "spaces/documents/yaml_text.py"}
"""Files that read YAML."""


@pytest.mark.parametrize(
    ("text", "key", "line", "first"),
    [
        ("on: 1\nrequires: {a: 1}\nrequires: {b: 2}\n", "requires", 3, 2),
        ("switch:\n  values: {on: {tp: 1, tp: 2}}\n", "tp", 2, 2),
        ("- a: 1\n- {b: 2}\n- b: 2\n  c: 3\n  b: 4\n", "b", 5, 3),
        ("a: &one {x: 1, x: 2}\nb: *one\n", "x", 1, 1),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_both_lines(text: str, key: str, line: int, first: int) -> None:
    law = re.escape(f"data.yaml, line {line}: key '{key}' is given twice (first on line {first})")
    with pytest.raises(ValueError, match=law):
        plain_data(text, source="data.yaml")


def test_merged_keys_may_be_overridden_and_aliases_are_values() -> None:
    text = "base: &base {a: 1, b: 2}\nown: {<<: *base, b: 3}\nsame: *base\nempty:\n"
    found = {"base": {"a": 1, "b": 2}, "own": {"a": 1, "b": 3}, "same": {"a": 1, "b": 2}, "empty": None}
    assert plain_data(text, source="data.yaml") == found
    assert plain_data("", source="data.yaml") is None


def test_every_yaml_file_of_the_package_has_its_keys_once() -> None:
    paths = [path for room in ("search", "simulator", "spaces") for path in (ROOT / room).rglob("*.yaml")]
    assert len(paths) > 150
    for path in paths:
        plain_data(path.read_text(encoding="utf-8"), source=str(path))


def test_yaml_is_read_in_one_place_for_users_and_one_for_data() -> None:
    found = {
        str(path.relative_to(ROOT))
        for room in ("search", "simulator", "spaces")
        for path in (ROOT / room).rglob("*.py")
        if re.search(r"yaml\.(load|safe_load|parse|compose)|SafeLoader", path.read_text(encoding="utf-8"))
    }
    assert found == READERS


def test_names_are_those_of_the_files() -> None:
    names = package_names("forerun.spaces.frameworks", "data")
    assert "megatron-lm" in names and list(names) == sorted(names)
    assert package_yaml("forerun.spaces.frameworks", "data", f"{names[0]}.yaml")
