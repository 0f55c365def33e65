"""No verb writes over a file that is there, one that it reads above all; an answer outlives a file that fails."""

import errno
import os
from pathlib import Path

import pytest
from forerun_cli import cli

from forerun.search.cli.flags.declaration import flags_of
from forerun.search.cli.flags.kinds import OUTPUT
from forerun.search.cli.registry import VERBS
from forerun.spaces import system
from forerun.spaces.errors import RequestError
from forerun.spaces.files import check_output, csv_text, write_text

SEARCH = "search llama3-8b --cluster dgx-h100 --gpus 8 --global-batch 8 --seq-len 512"
RUNS = "run_id,device,gpus,model\na,h100-sxm5-80,8,llama3-8b\n"


def test_every_verb_with_output_files_has_force() -> None:
    found = 0
    for verb in VERBS:
        flags = list(flags_of(verb.declaration.flags))
        outputs = [flag for flag in flags if flag.kind is OUTPUT]
        found += len(outputs)
        assert not outputs or "--force" in {flag.name for flag in flags}, verb.name
    assert found >= 12


@pytest.mark.parametrize("flag", ["--out", "--report"])
def test_measured_runs_are_never_written_over(flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text(RUNS)
    (tmp_path / "other.csv").symlink_to(runs)
    for name in ("runs.csv", "other.csv"):
        for force in ("", "--force"):
            code, out, err = cli(capsys, f"validate {runs} {flag} {tmp_path / name} {force}")
            assert (code, out) == (2, "") and "also read or written by another" in err
    assert runs.read_text() == RUNS


def test_a_file_that_is_there_needs_force_and_a_link_is_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("kept")
    link.symlink_to(target)
    for path in (target, link):
        with pytest.raises(RequestError, match="--force"):
            check_output(path, force=False)
    check_output(link, force=True)
    write_text(link, "new")
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("kept", "new", False)


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(system, "rename", full)
    with pytest.raises(RequestError, match=r"cannot write .*page.html: No space left"):
        write_text(path, "new")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("page.html", "old")]


@pytest.mark.parametrize("flags", ["", "--json"])
def test_a_search_is_printed_where_its_folder_fails(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(system, "rename", full)
    code, out, err = cli(capsys, f"{SEARCH} --out {tmp_path / 'run'} {flags}")
    assert code == 2 and "tp" in out
    assert "leaderboard.json: No space left" in err


def test_no_cell_is_a_formula() -> None:
    lines = csv_text(["name", "value"], [{"name": "=cmd|a", "value": -3.5}, {"name": "-2.5e3"}]).splitlines()
    assert lines == ["name,value", "'=cmd|a,-3.5", "-2.5e3,"]
