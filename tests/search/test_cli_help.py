"""Help: it fits the terminal, loads nothing heavy, and its examples work."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from forerun.search.cli import main, program
from forerun.search.cli.flags.parsing import FORMER
from forerun.search.cli.registry import VERBS

ROOT = Path(__file__).parents[2]
WITHOUT_SUCCESSOR = ("--paradl",)
"""Flags of earlier releases that nothing replaces."""
SHORT = {"search", "simulate", "explain", "compare", "list", "show"}
"""Verbs whose examples need no file."""


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    """Every verb in one process, one after another: what the first loads is found with it."""
    program = (
        "import sys; from forerun.search.cli import main; from forerun.search.cli.registry import VERBS; "
        "heavy = {'importlib.metadata', 'numpy', 'rich', 'pydantic', 'networkx', 'yaml', 'scipy', 'ray', 'optuna'}; "
        "asked = [['--help'], ['--version'], *([verb.name, '--help'] for verb in VERBS)]; "
        "loaded = [(words, heavy & set(sys.modules)) for words in asked if main(words) or heavy & set(sys.modules)]; "
        "sys.exit(str(loaded[0]) if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_verb_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = run([verb, "--help"], capsys)

    assert re.search(rf"examples?:\n( +forerun .*\n)*? +forerun {verb} ", out.replace("\\\n", " "))


@pytest.mark.parametrize("arguments", [[], *([verb.name] for verb in VERBS)], ids=" ".join)
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_fits_the_terminal_and_its_commands_stay_whole(
    arguments: list[str], columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def commands(text: str) -> list[list[str]]:
        lines = text.replace("\\\n", " ").splitlines()
        return [shlex.split(line, comments=True) for line in lines if line.startswith(("  forerun ", "  torchrun "))]

    monkeypatch.setenv("COLUMNS", str(columns))
    out = run([*arguments, "--help"], capsys)
    epilog = next((verb.declaration.epilog for verb in VERBS if [verb.name] == arguments), program.EPILOG)

    if columns >= 80:  # YAML that is shown stays as it is written
        assert max(map(len, out.splitlines())) <= columns
    assert commands(out) == commands(epilog) != []


def examples() -> list[str]:
    """Return every command that the help of these verbs shows."""
    epilogs = [verb.declaration.epilog for verb in VERBS if verb.name in SHORT]
    text = "\n".join([program.EPILOG, *epilogs]).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip().startswith("forerun ")]


@pytest.mark.slow  # searches of every size
@pytest.mark.parametrize("command", examples())
def test_examples_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-cluster.yaml").write_text("device: h100-sxm\ndevices_per_node: 8\nmax_devices: 8\n")

    out = run(shlex.split(command)[1:], capsys)

    assert out


def test_no_page_or_message_names_a_flag_of_an_earlier_release() -> None:
    places = [path for room in ("public", "search", "simulator", "spaces") for path in (ROOT / room).rglob("*.py")]
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb"), ROOT / "README.md"]
    former = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, (*FORMER, *WITHOUT_SUCCESSOR)))})(?![\w-])")
    named = {
        f"{path.relative_to(ROOT)}: {flag}"
        for path in (*places, *pages)
        if path.name != "parsing.py"  # where they are answered by their successors
        for flag in former.findall(path.read_text(encoding="utf-8"))
    }

    assert not named
