"""Launch files of many tools with what they say (tests/search/launch_files.yaml), and refused ones."""

import dataclasses
from pathlib import Path
from typing import Any

import yaml

from forerun.search.formats import Imported, import_texts
from forerun.search.formats.shell import Given

TABLE = Path(__file__).parents[1] / "search" / "launch_files.yaml"


@dataclasses.dataclass(frozen=True)
class LaunchFile:
    """Files, what they are imported with, and what they say."""

    files: dict[str, str]
    strategy: str
    workload: dict[str, Any]
    format: str | None = None
    given: dict[str, Any] = dataclasses.field(default_factory=dict)

    def read(self) -> Imported:
        options = dict(self.given)
        return import_texts(self.files, given=Given(arguments=tuple(options.pop("arguments", ()))), **options)


LAUNCH_FILES = {name: LaunchFile(**entry) for name, entry in yaml.safe_load(TABLE.read_text("utf-8")).items()}


def text_of(name: str) -> str:
    """Return the one file of a case."""
    (text,) = LAUNCH_FILES[name].files.values()
    return text


def _changed(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a refused case with its files: its own, or those of another case with one text changed."""
    files = entry.get("files") or LAUNCH_FILES[entry["like"]].files
    old, new = entry.get("change", ("", ""))
    assert any(old in text for text in files.values())
    return {**entry, "files": {name: text.replace(old, new) if old else text for name, text in files.items()}}


REFUSED_FILES = {
    name: _changed(entry)
    for name, entry in yaml.safe_load(TABLE.with_name("refused_files.yaml").read_text("utf-8")).items()
}
