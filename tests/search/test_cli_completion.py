"""Completion scripts in the shells themselves, where they are installed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from forerun.search.cli import main
from forerun.search.cli.completion import WRITERS, gather
from forerun.search.cli.registry import VERBS


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, verbs = tmp_path_factory.mktemp("completion"), gather()
    paths = {}
    for shell, write in WRITERS.items():
        paths[shell] = folder / f"forerun.{shell}"
        paths[shell].write_text(write(verbs))
    return paths


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def ask(shell: str, program: str, *arguments: str) -> list[str]:
    flags = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *flags, "-c", program, *arguments], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\n")[:-1]


def words_of(value: list[str] | set[str]) -> str:
    """The same name of a case in every process that collects the tests."""
    return " ".join(sorted(value) if isinstance(value, set) else value)


CASES = (
    (["sea"], {"search"}),
    (["search", "llama3-7"], {"llama3-70b"}),
    (["search", "llama3-70b", "--clus"], {"--cluster"}),
    (["search", "llama3-70b", "--cluster", "dgx-h1"], {"dgx-h100"}),
    (["export", "run", "--format", "torchtitan-"], {"torchtitan-0.3", "torchtitan-toml"}),
    (["search", "x", "--objective", ""], {"throughput", "cost", "gpus", "headroom"}),
    (["list", "dev"], {"devices"}),
)


@needs("bash")
@pytest.mark.parametrize(("words", "expected"), CASES, ids=words_of)
def test_bash(words: list[str], expected: set[str], scripts: dict[str, Path]) -> None:
    program = (
        'source "$0"; COMP_WORDS=(forerun "$@"); COMP_CWORD=$#; _forerun; (( ${#COMPREPLY[@]} == 0 )) || '
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )

    assert set(ask("bash", program, str(scripts["bash"]), *words)) == expected


@needs("zsh")
@pytest.mark.parametrize(("words", "expected"), CASES, ids=words_of)
def test_zsh(words: list[str], expected: set[str], scripts: dict[str, Path]) -> None:
    """Its completion system needs a terminal, so that its three functions are replaced by ones that print."""
    program = """
        compadd() { shift; print -l -- "$@"; }
        _describe() { print -l -- "${items[@]%%:*}"; }
        _files() { :; }
        source "$0"; words=(forerun "$@"); CURRENT=${#words}; _forerun
    """
    offered = ask("zsh", program, str(scripts["zsh"]), *words)

    assert {word for word in offered if word.startswith(words[-1])} == expected


@needs("fish")
@pytest.mark.parametrize(("words", "expected"), CASES, ids=words_of)
def test_fish(words: list[str], expected: set[str], scripts: dict[str, Path]) -> None:
    program = 'source $argv[1]; complete -C "forerun $argv[2]"'
    offered = ask("fish", program, str(scripts["fish"]), " ".join(words))

    assert {line.split("\t")[0] for line in offered} == expected


@needs("bash")
def test_files_are_left_to_bash(scripts: dict[str, Path]) -> None:
    program = 'source "$0"; COMP_WORDS=(forerun search x --out ""); COMP_CWORD=4; _forerun; echo "${#COMPREPLY[@]}"'

    assert ask("bash", program, str(scripts["bash"])) == ["0"]
    assert "-o default" in scripts["bash"].read_text()


def test_every_verb_and_flag_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    flags = {verb.name: _flags_of_help(verb.name, capsys) for verb in VERBS}
    for item in gather():
        spelled = {spelling for flag in item.flags for spelling in flag.spellings}
        assert flags[item.verb] <= spelled
    for shell in WRITERS:
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert all(verb.name in script for verb in VERBS)


def _flags_of_help(verb: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out.split("example")[0]
    return set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", shown, re.MULTILINE))
