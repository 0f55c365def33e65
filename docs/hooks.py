"""What the documentation is built with: examples that are run, and a page for every verb.

A page may have fenced blocks of two kinds. One with a title, like ```json title="config.json", is written to a file of
that name; one called ``forerun`` holds commands, which are run in the page's own folder after the blocks above it, and
is shown with what they print (``lines=12`` keeps the first twelve). So no page shows an answer that forerun does not
give. An example that fails or prints a line too wide for a page stops the build.
"""

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH = "80"
WIDEST = 160
"""Characters of a line that a page still shows."""
FENCE = re.compile(r"^```(?P<kind>[\w-]+)(?P<more>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="(?P<name>[\w.-]+)"')
BESIDE = re.compile(r"\[(?P<text>[^]]+)\]\(\.\./(?P<path>(?:benchmarks|search|simulator|spaces|tests)/[^)]+)\)")
"""A link from docs/ to another folder of the repository, which the site does not have."""
LINES = re.compile(r"lines=(?P<count>\d+)")
MORE = {
    "export": "Formats, their limits and launch lines: [From answer to launch](../formats.md).",
    "import": "What is read, and what becomes of unknown settings: [From answer to launch](../formats.md).",
    "search": "Workers, sweeps and uneven stages: [Many cores, many machines](../distributed.md). "
    "Where the figures come from: [cost model](../cost-model.md).",
    "simulate": "Where the figures come from: [cost model](../cost-model.md).",
    "limits": "Models, splits, and where the figures come from: [Operator graphs](../operator-graphs.md).",
    "sweep": "Plans, resuming and Ray: [Many cores, many machines, many searches](../distributed.md).",
    "tune": "Launchers, trainers, outcomes and files: [From a ranking to the measured best](../tune.md).",
    "validate": "The columns of a table of runs: [Measured runs](../measured-runs.md).",
    "scale": "All-reduce, parameter servers and stragglers: [Training modes](../training-modes.md).",
    "show": "A cluster, device or model of your own: [Extending](../extending.md).",
}
"""Verb -> where its page leads."""


@dataclass(frozen=True)
class Block:
    """One fenced block: a file to write (``name``), or commands to run (``name`` None); ``lines`` of output to keep."""

    text: str
    name: str | None
    lines: int | None
    span: tuple[int, int]


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page that are files or commands."""
    for match in FENCE.finditer(page):
        title, kept = TITLE.search(match["more"]), LINES.search(match["more"])
        if title is not None or match["kind"] == "forerun":
            yield Block(
                text=match["text"],
                name=None if title is None else title["name"],
                lines=None if kept is None else int(kept["count"]),
                span=match.span(),
            )


def run_page(page: str, folder: Path) -> list[tuple[Block, str]]:
    """Write the files of a page into ``folder`` and run its commands there; returns each block with what it printed.

    Raises:
        RuntimeError: a command failed, or printed a line beyond ``WIDEST``; the text has what it said.
    """
    done = []
    for block in blocks(page):
        if block.name is not None:
            (folder / block.name).write_text(block.text, encoding="utf-8")
            continue
        printed = []
        for command in commands(block.text):
            answer = run(command, folder)
            widest = max(map(len, answer.splitlines()), default=0)
            if widest > WIDEST and not command.startswith("cat "):
                raise RuntimeError(f"{command} printed a line of {widest} characters; a page shows {WIDEST}")
            printed.append(f"$ {command}\n{answer}")
        done.append((block, "\n".join(printed)))
    return done


def commands(text: str) -> list[str]:
    """Return the commands of a block; a backslash at the end of a line continues it."""
    return [line.strip() for line in re.split(r"(?<!\\)\n", text) if line.strip()]


def run(command: str, folder: Path, width: str = WIDTH) -> str:
    """Return what a command prints; ``forerun`` runs in this process, ``cat`` shows a file.

    Raises:
        RuntimeError: it is another program, or it failed.
    """
    from forerun.search.cli import main

    words = shlex.split(command.replace("\\\n", " "))
    if words[0] == "cat" and len(words) == 2:
        return (folder / words[1]).read_text(encoding="utf-8")
    if words[0] != "forerun":
        raise RuntimeError(f"examples run forerun and cat, but not {command!r}")
    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    kept = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update({"COLUMNS": width, "NO_COLOR": "1"})
    try:
        os.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words[1:])
    finally:
        os.chdir(before)
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    if code:
        raise RuntimeError(f"{command} ended with {code}: {err.getvalue()}")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def shown(page: str, results: list[tuple[Block, str]]) -> str:
    """Return a page whose command blocks show what was printed."""
    for block, printed in reversed(results):
        lines = printed.rstrip("\n").splitlines()
        kept = len(lines) if block.lines is None else block.lines
        text = "\n".join([*lines[:kept], *(["..."] if len(lines) > kept else [])])
        page = f"{page[: block.span[0]]}```console\n{text}\n```{page[block.span[1] :]}"
    return page


def verb_pages() -> dict[str, str]:
    """Return a page for every verb by file name: what it does, its examples and flags, and where more stands."""
    from forerun.search.cli.registry import VERBS

    pages = {}
    for verb in VERBS:
        declared = verb.declaration
        more = f"\n{MORE[verb.name]}\n" if verb.name in MORE else ""
        epilog = declared.epilog.replace("\\\\\n", "\\\n")
        about = verb.summary[0].upper() + verb.summary[1:]
        pages[f"verbs/{verb.name}.md"] = (
            f"# forerun {verb.name}\n\n{about}.\n{more}\n## Examples\n\n```text\n{epilog}\n```\n\n"
            f"## Flags\n\n{flags_table(declared.flags)}"
        )
    return pages


def flags_table(declared: Any) -> str:
    """Return the flags of a verb as a table: spelling and value, default, what it does, and what it counts for."""
    from forerun.search.cli.flags.declaration import MODELS, flags_of

    lines = ["| flag | default | what it does | counts for |", "|---|---|---|---|"]
    for flag in flags_of(declared):
        value = "" if flag.is_switch or flag.is_argument else f" {flag.metavar or '|'.join(flag.choices)}"
        spelled = f"{' '.join(flag.spellings or (flag.label,))}{value}"
        default = "" if flag.start in (None, False, []) else str(flag.default)
        about = flag.help + (f" ({flag.unit})" if flag.unit else "") + (" **required**" if flag.required else "")
        serves = "all" if flag.serves >= MODELS else ", ".join(sorted(answer.value for answer in flag.serves))
        cells = (f"`{spelled}`", default, about, serves)
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def on_config(config: Any) -> Any:
    """Put the verbs, the decisions and pages that the navigation does not name into it."""
    folder = Path(config.docs_dir)
    decisions = [f"decisions/{page.name}" for page in sorted((folder / "decisions").glob("*.md"))]
    filled = {
        "Verbs": [{name.split("/")[1].removesuffix(".md"): name} for name in verb_pages()],
        "Decisions": decisions,
    }
    for entry in config.nav:
        for title in filled.keys() & (entry.keys() if isinstance(entry, dict) else ()):
            entry[title] = filled[title]
    named = repr(config.nav)
    others = [page.name for page in sorted(folder.glob("*.md")) if repr(page.name) not in named]
    config.nav.extend([{"More": others}] if others else [])
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the verbs."""
    from mkdocs.structure.files import File

    for name, text in verb_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Run the examples of a page and show what they print; name files of the repository that are not on the site."""
    markdown = BESIDE.sub(r"\g<text> (`\g<path>`)", markdown)
    if not any(block.name is None for block in blocks(markdown)):
        return markdown
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "my-model"  # a model's name is that of the folder of its config.json
        folder.mkdir()
        return shown(markdown, run_page(markdown, folder))
