"""What a corpus is made of: a document, its file and the command that reads it."""

import contextlib
import io
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search.cli import main

REQUEST = "--cluster dgx-h100 --global-batch 16 --seq-len 512"
SEARCH = f"search llama3-8b {REQUEST} --gpus 8 --top 3"
STRATEGY = "tp2 pp2 dp2 mbs1 zero1 sp recompute=selective"
ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "tests" / "search" / "public_configs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One document. ``content``: plain data (mutated by structure), a text, or bytes. ``name``: the file that is
    written; its ending says how data are spelt. ``command``: words, ``{}`` for the file and ``{folder}`` for the folder
    that ``beside`` is copied to."""

    name: str
    content: Any
    command: str
    beside: Path | None = None


def quiet(words: str, *more: str) -> str:
    """Run a command that must succeed (``words`` are split, ``more`` are not); returns what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words.split(), *more])
    assert code == 0, f"exit {code} of {words} {' '.join(more)}: {err.getvalue()[-500:]}"
    return out.getvalue()


def copied(sample: Sample, folder: Path) -> None:
    """Put what a sample needs beside its file into an empty folder."""
    if sample.beside is not None:
        shutil.copytree(sample.beside, folder, dirs_exist_ok=True)
