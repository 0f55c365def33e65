"""What every verb answers, as files that two commits can be compared by: the proof that a refactor moved nothing.

    PYTHONPATH=$PWD/.typing python benchmarks/snapshots/snapshot.py take DIR [--only PATTERN]
    python benchmarks/snapshots/snapshot.py diff BEFORE AFTER [--every]

``take`` runs the command lines of ``cases.txt`` with the package that Python finds, and writes for each one its exit
code, its JSON, what it said on standard error and every file that it wrote; times that were measured and versions are
left out. To look at another commit, run this file with the ``.typing`` folder of a checkout of it. ``diff`` tells keys
that were added from those that were dropped and from values that changed. Its exit code is 1 if anything but added keys
differs.
"""

import argparse
import contextlib
import fnmatch
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from differences import compare, report

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WITHOUT_JSON = ("report", "completion")
"""Verbs that have no ``--json``: their standard output is kept as lines."""

MEASURED_KEYS = {"elapsed_s", "candidates_per_s", "versions", "required", "optional", "ray", "accelerators"}
"""Keys whose values differ from run to run, or from machine to machine."""

MEASURED_TIME = re.compile(r"\b\d[\d.,]*(?:e-?\d+)? ?(?:ms|s|seconds|min|M/s|k/s)\b")
"""Durations and rates in messages: what a search took is no part of its answer."""

SEARCHED_IN = re.compile(r"Searched in [^<]*")
"""Where a page says how long its search took, and with which versions."""

PUBLIC = ("llama3_8b_fp8.sh", "llama3_70b.toml", "ds_config_zero3.json", "nanotron_tiny_llama.yaml")
"""Published configurations that ``import`` reads."""

LONGEST = 400_000
"""Files of more characters (pages, timelines) are kept as their digest."""


def cases(pattern: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the words of every case whose name fits pattern."""
    for line in (HERE / "cases.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, words = line.split(": ", 1)
            if fnmatch.fnmatch(name, pattern):
                yield name, shlex.split(words)


def take(target: Path, pattern: str) -> None:
    """Run the cases and write one JSON file per case into target."""
    import forerun.search
    from forerun.search.cli import main

    print(f"{forerun.search.__file__} -> {target}", file=sys.stderr)
    target.mkdir(parents=True, exist_ok=True)
    scratch = target.resolve() / "scratch"
    _prepare(scratch)
    os.chdir(scratch)
    for name, words in cases(pattern):
        start = time.perf_counter()
        before = _written(scratch)
        out, err = io.StringIO(), io.StringIO()
        json_too = [] if words[0] in WITHOUT_JSON else ["--json"]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([*words, *json_too])
        files = {path: _content(scratch / path) for path, age in _written(scratch).items() if before.get(path) != age}
        answer = {
            "command": shlex.join(words),
            "exit": code,
            "stdout": _parsed(out.getvalue()),
            "stderr": _lines(MEASURED_TIME.sub("TIME", err.getvalue())),
            "files": files,
        }
        text = json.dumps(_canonical(answer), indent=1, sort_keys=True, ensure_ascii=False)
        (target.resolve() / f"{name}.json").write_text(text.replace(str(scratch), "SCRATCH") + "\n")
        print(f"{time.perf_counter() - start:6.1f} s  exit {code}  {name}", file=sys.stderr, flush=True)
    os.chdir(target.parent)
    shutil.rmtree(scratch)


def _prepare(scratch: Path) -> None:
    """Fill scratch with the inputs that cases name."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(HERE / "inputs", scratch)
    shutil.copytree(ROOT / "tests/simulator/traces", scratch / "traces")
    for name in PUBLIC:
        shutil.copy(ROOT / "tests/search/public_configs" / name, scratch)
    measured = ROOT / "benchmarks/measured/internevo.csv"
    shutil.copy(measured, scratch / "runs.csv")
    (scratch / "few.csv").write_text("".join(measured.read_text().splitlines(keepends=True)[:9]))


def _written(scratch: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in scratch.rglob("*"):
        if path.is_file():
            found[str(path.relative_to(scratch))] = (path.stat().st_mtime_ns, path.stat().st_size)
    return found


def _content(path: Path) -> Any:
    """Return what a file says: JSON parsed, text as lines, what is long or not text as a digest."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    if len(text) > LONGEST:
        return {"characters": len(text), "sha256": hashlib.sha256(data).hexdigest()}
    if path.suffix == ".jsonl":
        records = [json.loads(line) for line in text.splitlines()]
        return [{key: value for key, value in record.items() if key != "seconds"} for record in records]
    return _parsed(SEARCHED_IN.sub("Searched in TIME", text) if path.suffix == ".html" else text)


def _parsed(text: str) -> Any:
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError:
            pass
    return _lines(text)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def _canonical(value: Any) -> Any:
    """Return value without what differs from run to run."""
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items() if key not in MEASURED_KEYS}
    return [_canonical(item) for item in value] if isinstance(value, list) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    taking = verbs.add_parser("take")
    taking.add_argument("target", type=Path, metavar="DIR")
    taking.add_argument("--only", default="*", metavar="PATTERN", help="names of cases, like 'search-*'")
    comparing = verbs.add_parser("diff")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--every", action="store_true", help="every place, not one per kind of place")
    args = parser.parse_args()
    if args.verb == "take":
        take(args.target, args.only)
        return 0
    return report(compare(args.before, args.after), every=args.every)


if __name__ == "__main__":
    sys.exit(main())
