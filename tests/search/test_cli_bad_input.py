"""Bad input ends with exit code 2, one clear message on stderr, nothing on stdout and no trace."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from forerun_measured import write_runs

from forerun.search.cli import main
from forerun.search.cli.flags.declaration import Flag
from forerun.search.cli.flags.kinds import NUMBER, SWITCH
from forerun.search.cli.flags.parsing import Words

TRAINING = "--cluster dgx-h100 --global-batch 64 --seq-len 4096"
SEARCH = f"search llama3-8b {TRAINING} --gpus 16"
SIMULATE = f"simulate llama3-8b {TRAINING}"

REFUSALS = [
    pytest.param(shlex.split(group["begins"]) + shlex.split(words), message, id=f"{group['begins']} {words}")
    for group in yaml.safe_load(Path(__file__).with_name("refusals.yaml").read_text("utf-8"))
    for line in group["then"]
    for words, message in line.items()
]


@pytest.mark.parametrize(
    ("arguments", "message"), [*REFUSALS, ([*SEARCH.split(), "--global-batch", "9" * 1000], "whole number")]
)
def test_a_wrong_command_is_refused_with_a_sentence(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(arguments, message, capsys)


def refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(arguments)
    out, err = capsys.readouterr()

    assert code == 2, err
    assert out == ""
    assert message in err
    assert err.startswith("forerun: ") or err.startswith("usage: ")
    assert "Traceback" not in err and "internal error" not in err


def test_all_laws_that_a_strategy_breaks_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    main([*SIMULATE.split(), "--strategy", "tp3 dp3 mbs7"])

    err = capsys.readouterr().err
    assert "32 heads" in err and "8 key/value heads" in err and "global batch 64" in err


SPACES = {
    "unknown key": ("axis: {tp: [1]}", "unknown key; did you mean axes"),
    "unknown axis": ("axes:\n  tp: [1]\n  ppp: [2]\n", "line 3, axes.ppp: unknown axis 'ppp'; did you mean pp"),
    "misspelt choice": ("axes:\n  recompute: [ful]\n", "did you mean full"),
    "negative choice": ("axes: {tp: [-1]}", "whole numbers"),
    "no choice": ("axes: {tp: []}", "axis tp has no choice"),
    "wrong type": ("axes: [1, 2]", "must be a mapping"),
    "fraction": ("axes: {tp: [1.5]}", "axes"),
    "list at the top": ("- 1\n- 2\n", "must be a mapping"),
    "no YAML": ("axes: {tp: [1", "line 1"),
}


@pytest.mark.parametrize("name", SPACES)
def test_bad_space(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = SPACES[name]
    path = tmp_path / "space.yaml"
    path.write_text(text)

    refused([*SEARCH.split(), "--space", str(path)], message, capsys)


def test_a_folder_in_use_is_refused_before_searching(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("\\documentclass{article}")

    refused([*SEARCH.split(), "--out", str(tmp_path)], "add --force", capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file"
    path.write_text("")

    refused([*SEARCH.split(), "--out", str(path)], "needs a folder", capsys)


def test_our_own_fault_has_its_own_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("seven")

    monkeypatch.setattr("forerun.search.answer.searches.search_request", broken)
    assert main(SEARCH.split()) == 1
    err = capsys.readouterr().err
    assert "ZeroDivisionError: seven" in err and "--debug" in err and "Traceback" not in err

    assert main([*SEARCH.split(), "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_has_its_own_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("forerun.search.answer.searches.search_request", interrupted)
    assert main(SEARCH.split()) == 130
    assert capsys.readouterr().err == "forerun: interrupted\n"


@pytest.mark.parametrize("verb", ["list models", "validate"])
@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(verb: str, tmp_path: Path) -> None:
    if verb == "validate":
        verb = f"validate {write_runs(tmp_path / 'runs.csv', {})}"
    command = f"{sys.executable} -m forerun.search {verb} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.returncode in (0, 141)  # 0 where all was written before the reader went


@pytest.mark.parametrize(
    "words",
    [
        f"{SEARCH} --out {{}}", f"{SEARCH} --report {{}}", f"{SEARCH} --space {{}}", "show {}", "report {}",
        "import {}", "sweep {}", "replay {}", "validate {}", "export {} --format all --out {}", "improve --traces {}",
        "scale {} --bandwidth 1Gb/s --workers 2",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["x" * 300, "loop", "file/inside"])
def test_names_that_no_file_can_have(
    words: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    assert main(words.format(f"./{name}", "./out").split()) == 2
    assert "our fault" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "redirection", "code", "told"),
    [
        ("list clusters", "> /dev/full", 2, "cannot write all of the output: No space left on device"),
        ("list clusters --json", "> /dev/full", 2, "cannot write all of the output: No space left on device"),
        ("list clusters", ">&-", 0, ""),
        ("list clusters", "2>&-", 0, ""),
        ("show nobody", "2> /dev/full", 2, ""),
    ],
)
@pytest.mark.slow
def test_streams_that_take_nothing(words: str, redirection: str, code: int, told: str) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = f"{sys.executable} -m forerun.search {words} {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)

    assert done.returncode == code
    assert told in done.stderr and "our fault" not in done.stderr and "Traceback" not in done.stderr


def test_an_optimizer_has_one_door_with_two_handles(capsys: pytest.CaptureFixture[str]) -> None:
    command = "simulate llama3-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --json --strategy"
    found = []
    for flags in (["--optimizer", "muon"], ["--with", "optimizer=muon"]):
        assert main([*command.split(), "dp8 mbs1 zero1", *flags]) == 0
        found.append(json.loads(capsys.readouterr().out)["step_time_s"])

    assert found[0] == found[1]


def test_encoder_tokens_are_among_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    command = "simulate qwen3-vl-8b --cluster dgx-h100 --global-batch 64 --seq-len 4096 --strategy"
    assert main([*command.split(), "tp8 dp1 mbs1 sp"]) == 0
    assert "encoder tokens" in " ".join(capsys.readouterr().out.split())


def test_a_negative_number_is_a_value_and_words_after_two_dashes_are_arguments() -> None:
    flags = (
        Flag("file", "a file", required=True),
        Flag("--text", "words"),
        Flag("--shift", "a number", NUMBER, "X"),
        Flag("--on", "", SWITCH),
    )
    parsed = Words("forerun x", flags, ["--text=two words", "--shift", "-1.5", "--on", "--", "--odd"]).parse(None)

    assert (parsed.file, parsed.text, parsed.shift, parsed.on) == ("--odd", "two words", -1.5, True)
    assert list(parsed.given) == ["file", "text", "shift", "on"]
