"""Faults other than kills: what a command says, what it leaves, and whether the next one goes on.

    python -m tests.faults.faults [--only TEXT]

Every fault ends with an exit code that is documented and one clear sentence, never with a trace; where a job goes on
afterwards, its results are those of an undisturbed run bit for bit.
"""

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.jobs import contents, jobs
from tests.fuzz.sample import REQUEST, SEARCH

LONG = f"search deepseek-v3 {REQUEST.replace('16', '8192')} --gpus 256..2048 --framework generic --workers serial"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended: ``code``, its output, and seconds since it was disturbed."""

    code: int
    out: str
    err: str
    seconds: float = 0.0


class Scene:
    """A folder, ways to run commands in it, and what a sweep finds in ``peace``."""

    def __init__(self, folder: Path, inputs: Path, peace: dict[str, bytes]) -> None:
        folder.mkdir()
        self.folder, self.run, self.peace = folder, inputs / "run", peace
        self.sweep = f"sweep {inputs / 'plan.yaml'} --out {folder / 'out'} --workers serial"

    def begun(self, words: str, **options: object) -> "subprocess.Popen[str]":
        """Begin a command."""
        command = [sys.executable, "-m", "forerun.search", *words.split()]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload, no-any-return]

    def ended(self, words: str, **options: object) -> Ended:
        """Run a command to its end."""
        process = self.begun(words, **options)
        out, err = process.communicate(timeout=300)
        return Ended(code=process.returncode, out=out or "", err=err or "")

    def disturbed(self, words: str, after_s: float, disturb: Callable[["subprocess.Popen[str]"], None]) -> Ended:
        """Begin a command, disturb it, and wait for its end."""
        process = self.begun(words)
        time.sleep(after_s)
        disturb(process)
        since_s = time.monotonic()
        out, err = process.communicate(timeout=300)
        return Ended(code=process.returncode, out=out, err=err, seconds=time.monotonic() - since_s)

    def goes_on(self) -> Iterator[str]:
        """Yield what is wrong with the sweep when it is resumed."""
        ended = self.ended(f"{self.sweep} --resume")
        if ended.code != 0:
            yield f"--resume ends with {ended.code}: {ended.err[-300:]}"
        elif contents(self.folder / "out") != self.peace:
            yield "--resume gives other results"


def _clear(ended: Ended, *codes: int) -> Iterator[str]:
    if ended.code not in codes:
        yield f"exit code {ended.code}, not {codes}: {ended.err[-300:]}"
    if "Traceback" in ended.err or "our fault" in ended.err:
        yield f"a trace: {ended.err[-500:]}"


def _signalled(number: signal.Signals, code: int) -> Callable[[Scene], Iterator[str]]:
    def fault(scene: Scene) -> Iterator[str]:
        ended = scene.disturbed(LONG, 6.0, lambda process: process.send_signal(number))
        yield from _clear(ended, code)
        if "tp" not in ended.out:
            yield "the best so far is not printed"
        if ended.seconds > 4:
            yield f"ended after {ended.seconds:.1f} s"

    return fault


def _sweep_signalled(scene: Scene) -> Iterator[str]:
    ended = scene.disturbed(scene.sweep, 2.5, lambda process: process.send_signal(signal.SIGTERM))
    yield from _clear(ended, 143, 0)
    yield from scene.goes_on()


def _two_processes(scene: Scene) -> Iterator[str]:
    first = scene.begun(scene.sweep)
    time.sleep(2.5)
    second = scene.ended(f"{scene.sweep} --resume")
    first.communicate(timeout=300)
    yield from _clear(second, 0, 2)
    if first.returncode != 0:
        yield f"the first ends with {first.returncode}"
    yield from scene.goes_on()


def _folder_vanishes(scene: Scene) -> Iterator[str]:
    ended = scene.disturbed(scene.sweep, 2.5, lambda _: shutil.rmtree(scene.folder / "out", ignore_errors=True))
    yield from _clear(ended, 0, 2)


def _torn(name: str, change: Callable[[bytes], bytes], *codes: int) -> Callable[[Scene], Iterator[str]]:
    """A file of a finished sweep is changed; ``codes``: of the next run, none: it must go on."""

    def fault(scene: Scene) -> Iterator[str]:
        scene.ended(scene.sweep)
        path = scene.folder / "out" / name
        path.write_bytes(change(path.read_bytes()))
        if codes:
            yield from _clear(scene.ended(f"{scene.sweep} --resume"), *codes)
        else:
            yield from scene.goes_on()

    return fault


def _foreign_file(scene: Scene) -> Iterator[str]:
    (scene.folder / "out").mkdir()
    (scene.folder / "out" / "thesis.txt").write_text("mine")
    yield from _clear(scene.ended(scene.sweep), 0, 2)
    if (scene.folder / "out" / "thesis.txt").read_text() != "mine":
        yield "a foreign file was changed"


def _full(words: str) -> Callable[[Scene], Iterator[str]]:
    """No file may grow beyond some bytes, as on a full disk."""

    def fault(scene: Scene) -> Iterator[str]:
        def limit() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

        out = scene.folder / "out"
        ended = scene.ended(words.format(out=out, run=scene.run), preexec_fn=limit)
        yield from _clear(ended, 2, 0)
        if out.is_file() or (out.is_dir() and any(path.stat().st_size == 2000 for path in out.rglob("*.json"))):
            yield "a torn file is left"
        if words.startswith("search") and "tp" not in ended.out:
            yield "the answer is not printed"

    return fault


def _to(words: str, make: Callable[[Path], None], *codes: int) -> Callable[[Scene], Iterator[str]]:
    """An output is a link, a device, a pipe, a folder."""

    def fault(scene: Scene) -> Iterator[str]:
        target = scene.folder / "target"
        make(target)
        before = target.read_bytes() if target.is_file() else b""
        yield from _clear(scene.ended(words.format(target=target)), *codes)
        if target.is_file() and target.read_bytes() != before:
            yield "what the output points at was changed"

    return fault


def _stdout(path: str) -> Callable[[Scene], Iterator[str]]:
    def fault(scene: Scene) -> Iterator[str]:
        with open(path, "w") as stream:
            yield from _clear(scene.ended(SEARCH, stdout=stream), 0, 2)

    return fault


def _reader_leaves(scene: Scene) -> Iterator[str]:
    process = scene.begun(f"{SEARCH} --json")
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    err = process.stderr.read()
    yield from _clear(Ended(code=process.wait(), out="", err=err), 0, 141)


def _killed_worker(scene: Scene) -> Iterator[str]:
    """One of two worker processes is killed."""

    def disturb(process: "subprocess.Popen[str]") -> None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children[-1:]:
            os.kill(int(child), signal.SIGKILL)

    words = scene.sweep.replace("serial", "processes --worker-count 2")
    yield from _clear(scene.disturbed(words, 5.0, disturb), 0, 1, 2)
    yield from scene.goes_on()


def _at_once(scene: Scene) -> Iterator[str]:
    """Ten searches write to one folder with --force at the same time."""
    ends: list[Ended] = []
    words = f"{SEARCH} --out {scene.folder / 'out'} --force"
    threads = [threading.Thread(target=lambda: ends.append(scene.ended(words))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ended in ends:
        yield from _clear(ended, 0, 2)
    yield from _clear(scene.ended(f"report {scene.folder / 'out'} --force"), 0)


def _link(target: Path) -> None:
    (target.parent / "linked").write_text("keep")
    target.symlink_to(target.parent / "linked")


FAULTS: dict[str, Callable[[Scene], Iterator[str]]] = {
    "SIGTERM on a long serial search": _signalled(signal.SIGTERM, 143),
    "SIGINT on a long serial search": _signalled(signal.SIGINT, 130),
    "SIGHUP on a long serial search": _signalled(signal.SIGHUP, 129),
    "SIGTERM on a sweep": _sweep_signalled,
    "two sweeps on one folder": _two_processes,
    "the folder of a sweep vanishes": _folder_vanishes,
    "a foreign file in the folder of a sweep": _foreign_file,
    "a worker is killed": _killed_worker,
    "ten searches write to one folder": _at_once,
    "the last record is torn": _torn("pieces.jsonl", lambda data: data[:-20]),
    "a record is edited": _torn("pieces.jsonl", lambda data: data.replace(b"0.", b"1.", 1), 2),
    "records are bytes of something else": _torn("pieces.jsonl", lambda data: os.urandom(1000) + data[1000:], 2),
    "records are empty": _torn("pieces.jsonl", lambda data: b""),
    "sweep.json is torn": _torn("sweep.json", lambda data: data[:50], 0, 2),
    "a full disk under a search": _full(SEARCH + " --out {out}"),
    "a full disk under a report": _full("report {run} --out {out}"),
    "a full disk under an export": _full("export {run} --format all --out {out}"),
    "an output is a link": _to(SEARCH + " --report {target}", _link, 2),
    "an output is a pipe": _to(SEARCH + " --report {target}", os.mkfifo, 2),
    "an output is a folder": _to(SEARCH + " --report {target}", Path.mkdir, 2),
    "an output is a full device": _to(SEARCH + " --report /dev/full", lambda _: None, 2),
    "stdout is full": _stdout("/dev/full"),
    "the reader of stdout leaves": _reader_leaves,
    "a slip in --address": _to(
        SEARCH + " --workers ray --address head..local:6379 --report {target}", lambda _: None, 2
    ),
}


def main() -> None:
    """Try every fault in a folder of its own and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults whose name holds this text")
    args = parser.parse_args()
    failures = tried = 0
    with tempfile.TemporaryDirectory() as name:
        inputs = Path(name) / "inputs"
        jobs(inputs)
        calm = Scene(Path(name) / "calm", inputs, {})
        calm.ended(calm.sweep)
        peace = contents(calm.folder / "out")
        for number, (fault, check) in enumerate(FAULTS.items()):
            if args.only not in fault:
                continue
            scene = Scene(Path(name) / f"fault{number}", inputs, peace)
            found = list(check(scene))
            tried, failures = tried + 1, failures + bool(found)
            print(f"{'failed' if found else 'held  '}  {fault}", *found, sep="\n        " if found else "", flush=True)
    print(f"{tried} faults, {failures} failures")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
