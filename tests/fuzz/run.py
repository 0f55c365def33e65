"""Mutated documents of every reader through the command line, in one process.

    python -m tests.fuzz.run [--cases 10000] [--seed 0] [--minutes M] [--only NAME] [--keep DIR]

A case fails where the verb ends with another exit code than 0, 2 or 3, raises, prints a trace, a warning or a raw
control character, takes longer than ``SECONDS`` of CPU, or takes more than ``BYTES`` of memory beside what the
process had. Failing cases are kept with their command; the same seed makes the same cases.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml

from forerun.search.cli import main as forerun
from forerun.spaces.escaping import harmful
from tests.fuzz.corpus import samples
from tests.fuzz.graphs_and_traces import archive, repacked
from tests.fuzz.mutate import json_text, mutated_bytes, mutated_data, mutated_syntax, mutated_text
from tests.fuzz.sample import Sample, copied

SECONDS, BYTES = 2.0, 500 << 20
STOP = 10.0
"""Seconds of CPU after which a case is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong with one case, and what ``run`` was doing."""

    sample: Sample
    kind: str
    detail: str
    words: list[str]
    content: bytes


class TooLongError(BaseException):
    """A case was given up; no handler of errors catches it."""


def spelt(sample: Sample, content: Any) -> bytes:
    """Return a document as the bytes of its file."""
    if isinstance(content, bytes):
        return content
    if isinstance(content, str):
        return content.encode("utf-8", "surrogateescape" if "\udc80" <= min(content, default="") else "replace")
    if sample.name.endswith(".pt2"):
        return archive(json_text(content))
    if sample.name in ("pieces.jsonl", "studies.log") and isinstance(content, list):
        return b"".join(_line(line) for line in content)
    if sample.name.endswith((".yaml", ".yml")):
        try:
            return yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode("utf-8", "replace")
        except (yaml.YAMLError, RecursionError):
            return json_text(content).encode()
    return json_text(content).encode()


def _line(record: Any) -> bytes:
    """Return a line of a journal; of a sweep's with the right sum, so that what lies behind that is reached."""
    if not (isinstance(record, dict) and "sum" in record):
        return json_text(record).encode() + b"\n"
    body = json.dumps({name: value for name, value in record.items() if name != "sum"}, separators=(",", ":"))[:-1]
    return f'{body},"sum":"{hashlib.sha256(body.encode()).hexdigest()[:16]}"}}\n'.encode()


def mutated(sample: Sample, random: Random) -> bytes:
    """Return a changed document."""
    content = sample.content
    try:
        if sample.name.endswith(".pt2") and random.random() < 0.1:
            return repacked(json_text(content) if isinstance(content, dict) else "{}", random)
        if isinstance(content, bytes):
            return mutated_bytes(content, random)
        if isinstance(content, str):
            change = mutated_syntax if random.random() < 0.15 else mutated_text
            return spelt(sample, change(content, random))
        data = spelt(sample, mutated_data(content, random))
    except (RecursionError, OverflowError, MemoryError):
        return b""
    kind = random.random()
    if kind < 0.1 and not sample.name.endswith((".pt2", ".gz")):
        return mutated_syntax(data.decode("utf-8", "replace"), random).encode("utf-8", "replace")
    return mutated_bytes(data, random) if kind < 0.2 else data


def words_of(sample: Sample, content: bytes, path: Path) -> list[str]:
    """Return the words of the command; parts between ``@`` are one word."""
    if sample.name == "words":
        return [word for word in content.decode("utf-8", "replace").split("\n")]
    parts = sample.command.replace("{folder}", str(path.parent)).replace("{}", str(path)).split("@")
    words = parts[0].split()
    for number, part in enumerate(parts[1:], start=1):
        words += [part] if number % 2 else part.split()
    return words


def tried(sample: Sample, content: bytes, folder: Path) -> Failure | None:
    """Run one case in an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    copied(sample, folder)
    path = folder / sample.name
    path.write_bytes(content)
    words = words_of(sample, content, path)

    def failed(kind: str, detail: str = "") -> Failure:
        return Failure(sample=sample, kind=kind, detail=detail, words=words, content=content)

    out, err = io.StringIO(), io.StringIO()
    before = _peak_bytes(reset=True)
    begin_s = time.process_time()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("always")
            signal.setitimer(signal.ITIMER_PROF, STOP)
            code = forerun([*words, "--debug"] if "--debug" not in words else words)
    except TooLongError:
        return failed("hang", f"over {STOP:g} s")
    except BaseException:
        return failed("raised", traceback.format_exc()[-1500:])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took_s = time.process_time() - begin_s
    text = err.getvalue()
    if code not in (0, 2, 3):
        return failed(f"exit {code}", text[-1500:])
    shown = "\n".join(line for line in text.splitlines() if line.startswith("forerun: "))
    if "Warning:" in text:
        return failed("warning", text[-600:])
    raw = harmful(out.getvalue() + shown)
    if raw is not None:
        return failed("control character", repr(raw))
    if code == 0 and "import" not in words and _nonsense(out.getvalue()):
        return failed("nan", out.getvalue()[:600])
    if took_s > SECONDS:
        return failed("slow", f"{took_s:.1f} s, exit {code}")
    grown = _peak_bytes() - before
    if grown > BYTES:
        return failed("memory", f"{grown >> 20} MiB, exit {code}")
    return None


def _peak_bytes(*, reset: bool = False) -> int:
    """Return the most memory that the process had resident since it was last reset (Linux)."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


def _nonsense(text: str) -> bool:
    # A title is the user's own text.
    figures = "\n".join(line for line in text.splitlines() if not line.startswith("title:"))
    words = set(figures.lower().replace(",", " ").replace(":", " ").replace("|", " ").split())
    return bool(words & {"nan", "inf", "-inf", "infinity", "nans", "infs", "nan%", "inf%"})


def stopped(*_: object) -> None:
    """Give a case up."""
    raise TooLongError


def fuzz(
    corpus: list[Sample], *, cases: int, seed: int, folder: Path, minutes: float = 0.0
) -> tuple[int, list[Failure]]:
    """Try ``cases`` documents, or as many as ``minutes`` have; returns how many were tried, and the failures."""
    before = signal.signal(signal.SIGPROF, stopped)
    for sample in corpus:  # what is imported counts for nobody
        tried(sample, spelt(sample, sample.content), folder / "case")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    end_s = time.monotonic() + 60 * minutes if minutes else float("inf")
    count, failures = 0, []
    try:
        resource.setrlimit(resource.RLIMIT_AS, (in_use + 8 * BYTES, limits[1]))
        for number in range(cases):
            if time.monotonic() > end_s:
                break
            random = Random(f"{seed}.{number}")
            sample = corpus[number % len(corpus)]
            failure = tried(sample, mutated(sample, random), folder / "case")
            count += 1
            if failure is not None:
                failures.append(failure)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGPROF, before)
    return count, failures


def keep(failures: list[Failure], folder: Path) -> None:
    """Write failing cases: the document, and beside it the command and what went wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, failure in enumerate(failures):
        path = folder / f"{number:04d}-{failure.kind.replace(' ', '-')}-{failure.sample.name}"
        path.write_bytes(failure.content)
        path.with_name(path.name + ".txt").write_text(
            f"{json.dumps(failure.words)}\n\n{failure.detail}\n", encoding="utf-8", errors="backslashreplace"
        )


def main() -> None:
    """Fuzz and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="names of documents that hold this text")
    parser.add_argument("--keep", type=Path, help="folder for failing cases")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = [sample for sample in samples(folder) if args.only in f"{sample.name} {sample.command}"]
        documents, failures = fuzz(corpus, cases=args.cases, seed=args.seed, folder=folder, minutes=args.minutes)
    if args.keep is not None:
        keep(failures, args.keep)
    for (kind, what, detail), count in Counter(
        (one.kind, f"{one.sample.name}: {one.sample.command[:50]}", (one.detail.strip().splitlines() or [""])[-1][:150])
        for one in failures
    ).most_common():
        print(f"{count:5d}  {kind}  {what}  {detail}")
    print(f"{len(failures)} failures of {documents:,} documents")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
