"""Files that are no tables of runs: one message that names file, line and column."""

from pathlib import Path

import pytest
from forerun_measured import ROW, write_runs

from forerun.search.measured.validate import load_runs
from forerun.search.measured.validate.columns import REQUIRED
from forerun.spaces.errors import RequestError


def refused(*paths: Path) -> str:
    """The message with which files are refused."""
    with pytest.raises(RequestError) as caught:
        load_runs(paths)
    message = str(caught.value)
    assert paths[-1].name in message
    return message


def test_columns_that_are_not_required_may_be_missing(tmp_path: Path) -> None:
    columns = (*REQUIRED, "vocab", "ffn_hidden", "gated_mlp")
    result = load_runs([write_runs(tmp_path / "runs.csv", {}, columns=columns)])
    assert len(result.runs) == 1


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", {}, columns=tuple(name for name in REQUIRED if name != "heads"))
    assert "column heads is missing" in refused(path)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"step_time_s": "-1"}, "line 2, column step_time_s: must not be negative, but is -1"),
        ({"gpus": "-8"}, "line 2, column gpus: must not be negative, but is -8"),
        ({"step_time_s": "fast"}, "line 2, column step_time_s: must be a finite number of zero or more, but is 'fast'"),
        ({"step_time_s": "nan"}, "line 2, column step_time_s"),
        ({"peak_mem_gib": "inf"}, "line 2, column peak_mem_gib"),
        ({"outcome": "okay"}, "line 2, column outcome: unknown outcome 'okay'; did you mean ok?"),
        ({"run_id": ""}, "line 2, column run_id: every run needs a name"),
    ],
)
def test_a_wrong_cell_is_named(tmp_path: Path, change: dict[str, str], part: str) -> None:
    assert part in refused(write_runs(tmp_path / "runs.csv", change))


def test_the_same_file_twice(tmp_path: Path) -> None:
    path = write_runs(tmp_path / "runs.csv", {})
    assert "'lab-0000' is in" in refused(path, path)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "not UTF-8 text"),
        (b"a\x00b,c\n1,2\n", ""),
        (b'{"runs": []}', "column run_id"),
        (b"run_id,run_id\n1,2\n", "run_id is there twice"),
        (",".join(ROW).encode() + b"\n1,2,3\n", "line 2: 33 columns are named, but this line has 3"),
        (",".join(ROW).encode() + b'\n"' + b"x" * 200_000 + b'"\n', "field larger than field limit"),
        (",".join(ROW).encode() + b'\n"unterminated', "not a CSV table"),
    ],
)
def test_no_table(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    assert part in refused(path)


def test_no_file(tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "absent.csv")
    assert "is a directory" in refused(tmp_path)
