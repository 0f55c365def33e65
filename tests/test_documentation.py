"""Examples of the documentation run: its Python, and the flags that it names (`make docs` runs its commands)."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from forerun.search.cli.flags.declaration import flags_of
from forerun.search.cli.registry import VERBS

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"forerun_docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


hooks, readme = _module("hooks"), _module("readme")
WITH_PYTHON = [
    pytest.param(page, marks=[pytest.mark.slow] * (page.stem in ("exploration", "python-api")))  # they search
    for page in PAGES
    if "```python\n" in page.read_text()
]


def test_the_tutorial_ends_with_a_script_that_bash_reads(tmp_path: Path) -> None:
    import subprocess

    hooks.run_page((DOCS / "tutorial.md").read_text(), tmp_path)

    assert subprocess.run(["bash", "-n", str(tmp_path / "launch" / "launch.sh")]).returncode == 0
    assert "--num-layers 40" in (tmp_path / "launch" / "launch.sh").read_text()


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_of_a_page_runs(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(code, str(page), "exec"), names)


def _mentioned() -> list[tuple[str, str]]:
    found = []
    for page in (*PAGES, DOCS.parent / "README.md"):
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"^(?: {4}|\$ )(forerun [a-z].*)$", text, re.MULTILINE):
            found.append((page.name, line.split(" # ")[0]))
    return found


@pytest.mark.parametrize(("page", "line"), _mentioned())
def test_flags_that_are_mentioned_exist(page: str, line: str) -> None:
    flags = {verb.name: {s for flag in flags_of(verb.declaration.flags) for s in flag.spellings} for verb in VERBS}
    words = shlex.split(line, comments=True)
    own = words[: words.index("--")] if "--" in words else words  # behind it are another program's

    assert words[1] in flags
    for word in own[2:]:
        if word.startswith("--") and word != "--help":
            assert word.split("=")[0] in flags[words[1]], line


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "demo")) for name in readme.PARTS]
)
def test_the_readme_shows_what_forerun_answers_and_measured(name: str) -> None:
    text = readme.README.read_text()
    assert readme.part(name, text) == readme.PARTS[name](), "run `make readme` and look at what changed"


def test_other_figures_of_the_readme_are_no_measurements() -> None:
    text = readme.README.read_text()
    for name in readme.PARTS:
        text = text.replace(readme.part(name, text), "")
    assert re.findall(r"\d+\.\d+ (?:%|s|ms)", text) == []


ROOT = DOCS.parent
WITH_LINKS = [*DOCS.glob("**/*.md"), *ROOT.glob("*.md")]
FOLDERS = ("benchmarks", "docs", "public", "search", "simulator", "spaces", "tests")
OTHERS = {"ray_job.py", "pretrain_gpt.py", "pretrain_hybrid.py", "schedules.py", "stage.py", "train.py"}
"""Modules of Megatron-LM and PyTorch that pages name, and a program of the user."""
MODULES = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")} | OTHERS


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_exists(page: Path) -> None:
    for target in re.findall(
        r"(?<!!)\[[^]]+\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    ):
        if target.startswith(("http://", "https://", "mailto:", "verbs/")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor:
            assert anchor in _anchors(linked.read_text()), target


def _anchors(text: str) -> set[str]:
    """Anchors of the headings of a page, as mkdocs and GitHub name them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    gone = [name for name in re.findall(r"`(?:[\w./-]*/)?([\w-]+\.py)`", text) if name not in MODULES]
    for name in re.findall(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./*-]+)", text):
        path = name.rstrip(".")
        gone += [] if (any(ROOT.glob(path)) if "*" in path else (ROOT / path).exists()) else [path]
    assert not gone, "pages name files that exist"


def test_every_verb_has_a_page() -> None:
    from forerun.search.cli.registry import VERBS

    pages = hooks.verb_pages()
    assert set(pages) == {f"verbs/{verb.name}.md" for verb in VERBS}
    for text in pages.values():
        assert "## Examples" in text and "forerun " in text and "| `--debug` |" in text


def test_an_example_that_fails_stops_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="ended with 2"):
        hooks.run_page("```forerun\nforerun show nobody\n```\n", tmp_path)
    with pytest.raises(RuntimeError, match="a line of 161 characters"):
        (tmp_path / "wide").write_text("x" * 161)
        monkeypatch.setattr(hooks, "run", lambda command, folder: (folder / "wide").read_text())
        hooks.run_page("```forerun\nforerun show wide\n```\n", tmp_path)
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="run forerun and cat"):
        hooks.run_page("```forerun\nrm -r x\n```\n", tmp_path)


def test_the_changelog_keeps_its_form() -> None:
    """Releases with dates, newest first; sections of Keep a Changelog; entries of one sentence or two."""
    from forerun.search.files.release import VERSION

    text = (ROOT / "CHANGELOG.md").read_text()
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert titles[1].split(" - ")[0] == VERSION
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", title) for title in titles[1:])
    dates = [title.split(" - ")[1] for title in titles[1:]]
    assert dates == sorted(dates, reverse=True)
    sections = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert sections <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    for title, section in zip(titles, text.split("\n## ")[1:], strict=True):
        assert len(section.splitlines()) <= 160, f"{title} is too long to be read"


def test_the_map_fits_a_screen_and_has_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    shown = text.partition("## The map\n")[2].partition("\n## ")[0]
    rooms = {
        path.parent.name for top in ("search", "simulator", "spaces") for path in ROOT.glob(f"{top}/*/__init__.py")
    }
    assert len(shown.splitlines()) <= 32
    assert rooms - set(re.findall(r"\w+", shown)) == set()


def test_a_request_is_followed_through_few_named_places() -> None:
    text = (
        (ROOT / "CONTRIBUTING.md")
        .read_text()
        .partition("## From a command to a launch file\n")[2]
        .partition("\n## ")[0]
    )
    places = re.findall(r"^\d+\. `([\w/]+\.py)` \(`(\w+)`\)", text, re.MULTILINE)
    assert 8 <= len(places) <= 12
    for path, function in places:
        assert re.search(rf"^def {function}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path} has no {function}"


def test_contributing_says_where_every_verb_is_answered() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("### By verb\n")[2].partition("\n\nOperators")[0]
    first_cells = re.findall(r"^\| ([a-z, ]+) \| `", table, re.MULTILINE)
    assert sorted(verb.name for verb in VERBS) == sorted(", ".join(first_cells).split(", "))
