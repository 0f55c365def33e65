"""Launch files of many tools with what they say, from tests/search/launch_files.yaml."""

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
