"""Launch files of many tools, written small, are read as the tool would run them: degrees, batches, sharding."""

from pathlib import Path

import pytest
from launch_files import LAUNCH_FILES

from forerun.search.formats import format_named
from forerun.search.formats.describe import page
from forerun.search.formats.keys import Launcher, decisions
from forerun.search.formats.registry import tables


@pytest.mark.parametrize("name", LAUNCH_FILES)
def test_a_launch_file_is_read_as_the_tool_would_run_it(name: str) -> None:
    case = LAUNCH_FILES[name]
    imported = case.read()

    said = str(imported.strategy).replace("tp1 ", "").replace("pp1 ", "")
    assert (said, imported.format) == (case.strategy, case.format or imported.format)
    assert {key: imported.workload.get(key) for key in case.workload} == case.workload
    assert not imported.unknown


@pytest.mark.parametrize("launcher", [*tables()], ids=lambda launcher: launcher.name)
def test_a_table_says_what_each_key_decides(launcher: Launcher) -> None:
    names = [name for key in launcher.keys for name in key.names]

    assert all(key.decides in decisions() for key in launcher.keys)
    assert all(key.description and (key.counts or key.words is not None) for key in launcher.keys)
    assert len(names) - len(set(names)) <= 1, "a key stands in a table once (a mode and its default apart)"
    assert format_named(launcher.name).title == launcher.title


def test_the_page_of_keys_is_that_of_the_tables() -> None:
    written = (Path(__file__).parents[2] / "docs" / "launchers.md").read_text("utf-8")

    assert written == page(), "python -m forerun.search.formats.describe > docs/launchers.md"
