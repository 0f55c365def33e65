"""``forerun job``: the commands of a document, one after the other."""

from pathlib import Path

import pytest

from forerun.search.cli import main

JOBS = """\
values: {model: vgg16}
jobs:
  - verb: simulate
    arguments: ["${model}"]
    flags: {cluster: dgx1-v100, global-batch: 64, strategy: data2, json: true, inference: false}
  - {verb: show, arguments: [dgx1-v100]}
"""


def run(tmp_path: Path, text: str, *flags: str) -> int:
    path = tmp_path / "jobs.yaml"
    path.write_text(text, encoding="utf-8")
    return main(["job", str(path), *flags])


def test_commands_run_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, JOBS, "--set", "model=alexnet") == 0
    out, err = capsys.readouterr()
    assert out.startswith("{") and "DGX-1" in out
    assert err.splitlines()[0].startswith("forerun: $ forerun simulate alexnet --cluster=dgx1-v100")


def test_show_runs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, JOBS, "--show") == 0
    assert capsys.readouterr().out.count("$ forerun") == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("jobs: [{verb: fly}]", "unknown verb 'fly'"),
        ("jobs: [{verb: show, arguments: ['${x}']}]", "unknown value 'x'"),
        ("jobs: [{verb: job, arguments: [jobs.yaml]}]", "does not run job; list its jobs here"),
        ("jobs: [{verb: record, arguments: [--, ls]}]", "does not run record"),
        ("jobs: []", "jobs"),
        ("jobs: [{verb: show, flag: {}}]", "flag"),
    ],
)
def test_wrong_documents_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    assert run(tmp_path, text) == 2
    assert words in capsys.readouterr().err


def test_a_job_that_fails_ends_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "jobs: [{verb: show, arguments: [nothing]}, {verb: list, arguments: [devices]}]") == 2
    assert capsys.readouterr().out == ""
