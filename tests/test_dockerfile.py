"""The Dockerfile: it copies what the build reads, and its steps make a working command, without a daemon."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "Dockerfile").read_text()
COPIED = [words.split()[:-1] for words in re.findall(r"^COPY (?!--from)(.*)$", TEXT, re.MULTILINE)]


def copied() -> set[str]:
    return {source for sources in COPIED for source in sources}


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert copied() == kept
    assert all((ROOT / name).exists() for name in copied())


def test_the_interpreter_is_supported_and_the_user_is_not_root() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (least,) = re.findall(r"3\.(\d+)", project["requires-python"])

    assert {int(minor) for minor in re.findall(r"^FROM python:3\.(\d+)-slim", TEXT, re.MULTILINE)} == {13}
    assert int(least) <= 13
    assert re.search(r"^USER (?!root)", TEXT, re.MULTILINE)
    assert "--require-hashes" in TEXT


@pytest.mark.slow  # builds the package
def test_what_is_copied_builds_into_a_working_command(tmp_path: Path) -> None:
    source, target = tmp_path / "src", tmp_path / "site"
    source.mkdir()
    for name in copied():
        path = ROOT / name
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source / name)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(target), "."], cwd=source, check=True)
    libraries = sysconfig.get_path("purelib")  # without the editable install of this package, whose hook -S leaves out
    boot = f"import sys; sys.path.append({libraries!r}); "
    program = f"import sys; sys.path.insert(0, {str(target)!r}); from forerun.search.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-S", "-c", boot + program, "list", "models"], capture_output=True, text=True, cwd=tmp_path
    )

    assert "llama3-8b" in done.stdout, done.stderr
