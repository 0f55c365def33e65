"""Completion scripts in the shells themselves, where they are installed, and the man page."""

import shutil
import subprocess
from pathlib import Path

import pytest

from forerun.search.cli import main
from forerun.search.cli.completion import SHELLS, completion_script, man_page
from forerun.search.cli.flags.declaration import flags_of
from forerun.search.cli.registry import VERBS


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("completion")
    paths = {}
    for shell in SHELLS:
        paths[shell] = folder / f"forerun.{shell}"
        paths[shell].write_text(completion_script(shell))
    return paths


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def ask(shell: str, program: str, *arguments: str) -> list[str]:
    flags = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run([shell, *flags, "-c", program, *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
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
BASH = (
    'source "$0"; COMP_WORDS=(forerun "$@"); COMP_CWORD=$#; _shtab_forerun 2>/dev/null; '
    "(( ${#COMPREPLY[@]} == 0 )) || printf '%s\\n' \"${COMPREPLY[@]}\""
)


@needs("bash")
@pytest.mark.parametrize(("words", "expected"), CASES, ids=words_of)
def test_bash(words: list[str], expected: set[str], scripts: dict[str, Path]) -> None:
    assert set(ask("bash", BASH, str(scripts["bash"]), *words)) == expected


@needs("bash")
def test_bash_completes_the_names_of_files(scripts: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "answer").touch()

    assert ask("bash", BASH, str(scripts["bash"]), "search", "x", "--out", f"{tmp_path}/an") == [f"{tmp_path}/answer"]


@needs("zsh")
def test_zsh_reads_its_script(scripts: dict[str, Path]) -> None:
    assert ask("zsh", 'compdef() { :; }; source "$1"; print read', "zsh", str(scripts["zsh"])) == ["read"]


@needs("fish")
@pytest.mark.parametrize(("words", "expected"), CASES, ids=words_of)
def test_fish(words: list[str], expected: set[str], scripts: dict[str, Path]) -> None:
    program = 'source $argv[1]; complete -C "forerun $argv[2]"'
    offered = ask("fish", program, str(scripts["fish"]), " ".join(words))

    assert {line.split("\t")[0] for line in offered} == expected


def test_every_verb_and_flag_is_in_all_scripts_and_on_the_man_page(scripts: dict[str, Path]) -> None:
    page = man_page().replace("\\-", "-")
    for verb in VERBS:
        for flag in flags_of(verb.declaration.flags):
            for spelling in flag.spellings:
                assert spelling in page
                assert all(spelling in scripts[shell].read_text() for shell in ("bash", "zsh"))
    assert all(verb.name in path.read_text() for path in scripts.values() for verb in VERBS)


@needs("man")
def test_the_man_page_is_read_without_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "man"]) == 0
    page = tmp_path / "forerun.1"
    page.write_text(capsys.readouterr().out)
    done = subprocess.run(["man", "--warnings", "-l", str(page)], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    assert "--seq-len S" in done.stdout
