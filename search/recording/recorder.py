"""Recorder of training steps, one trace per rank, inside the training processes.

``forerun record`` puts a copy of this file, named ``sitecustomize.py``, on the path of the processes that it starts. It
therefore needs the standard library and the training's own PyTorch only, and runs on Python 3.10 or later. A process
that never steps an optimizer (a launcher, a data loader) is not recorded.
"""

from __future__ import annotations

import atexit
import contextlib
import gzip
import importlib.machinery
import importlib.util
import json
import os
import shutil
import socket
import statistics
import sys
import time
import weakref
from pathlib import Path
from typing import Any

WARM_UP = 2
"""Steps before the recorded ones in which the profiler runs already and keeps nothing."""
FOLDER, STEPS = "FORERUN_RECORD_FOLDER", "FORERUN_RECORD_STEPS"
"""Environment variables: folder of the traces; first and last step, like ``11:16``."""
RECORDS = "recording.jsonl"
"""One line per rank in the folder of the traces; its suffix differs from a trace's."""


class Recorder:
    """Profiles steps ``first`` to ``last`` of this rank, counted from 1, and writes ``rankN.json.gz`` to ``folder``.

    Two lines in a training script replace ``forerun record``::

        recorder = Recorder("traces", first=11, last=16)  # before the loop
        recorder.step()  # after every optimizer step

    ``first`` must be more than ``WARM_UP`` + 1: the earlier steps show the cost of recording.
    """

    def __init__(self, folder: str | os.PathLike[str], *, first: int = 11, last: int = 16) -> None:
        if not WARM_UP + 1 < first <= last:
            raise ValueError(f"steps to record begin at {WARM_UP + 2} or later and end no earlier: got {first}:{last}")
        self.folder, self.first, self.last = Path(folder), first, last
        self._ends_s: list[float] = []
        self._profiler: Any = None
        self._optimizer: Any = None
        atexit.register(self._ended_early)

    def step(self) -> None:
        """Count the end of an optimizer step."""
        done = len(self._ends_s) + 1
        if done > self.last:
            return
        self._ends_s.append(time.perf_counter())
        if done == self.first - 1 - WARM_UP:
            self._start()
        elif self._profiler is not None:
            self._profiler.step()
        if done == self.last:
            self._profiler.stop()
            self._profiler = None

    def attach(self, optimizers: Any) -> None:
        """Count the steps of the first active optimizer; ``optimizers`` is the module ``torch.optim.optimizer``."""
        if hasattr(optimizers, "register_optimizer_step_post_hook"):
            optimizers.register_optimizer_step_post_hook(self._stepped)
        else:
            print("forerun: this PyTorch has no hooks on optimizers; recording needs 2.1 or later", file=sys.stderr)

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
        if self._optimizer() is optimizer:
            self.step()

    def _start(self) -> None:
        import torch

        kinds = torch.profiler.ProfilerActivity
        devices = [kinds.CUDA] if torch.cuda.is_available() else []
        self._profiler = torch.profiler.profile(
            activities=[kinds.CPU, *devices],
            schedule=torch.profiler.schedule(wait=0, warmup=WARM_UP, active=self.last - self.first + 1, repeat=1),
            on_trace_ready=self._write,
            record_shapes=True,
        )
        self._profiler.start()

    def _write(self, profiler: Any) -> None:
        """Write the trace atomically and its record; the training continues if that fails."""
        try:
            self._write_trace(profiler)
        except Exception as error:  # of the disk or of the profiler: no reason to end a training
            print(f"forerun: no trace of rank {_rank()} is written: {error}", file=sys.stderr)

    def _write_trace(self, profiler: Any) -> None:
        trace = self.folder / f"rank{_rank()}.json.gz"
        temporary = self.folder / f".{os.getpid()}.{trace.name}"
        plain = temporary.with_suffix("")
        try:
            profiler.export_chrome_trace(str(plain))
            # The training waits for this: level 1 takes a tenth of the time of PyTorch's level 9.
            with open(plain, "rb") as source, gzip.open(temporary, "wb", compresslevel=1) as packed:
                shutil.copyfileobj(source, packed, 1 << 20)
            os.replace(temporary, trace)
        finally:
            for path in (plain, temporary):
                path.unlink(missing_ok=True)
        steps_s = [after - before for before, after in zip(self._ends_s[:-1], self._ends_s[1:], strict=True)]
        self._note(
            trace=trace.name,
            step_s=statistics.median(steps_s[self.first - 2 :]),
            before_s=statistics.median(steps_s[: self.first - 2 - WARM_UP] or [steps_s[0]]),
        )

    def _ended_early(self) -> None:
        if 0 < len(self._ends_s) < self.last:
            with contextlib.suppress(OSError):  # the disk is full: this rank has no record
                self._note()

    def _note(self, **found: Any) -> None:
        line = {"rank": _rank(), "host": socket.gethostname(), "steps": len(self._ends_s), **found}
        with open(self.folder / RECORDS, "ab", buffering=0) as file:  # one call, so that lines of ranks are not mixed
            file.write(json.dumps(line).encode() + b"\n")


def _rank() -> int:
    """Return the rank of this process from PyTorch, or from the launcher's variables."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return int(os.environ.get("RANK", "0"))


class _WhenImported:
    """Import hook that calls ``then`` with one module after its import."""

    def __init__(self, name: str, then: Any) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find ``name`` if it is the awaited module (contract of import hooks)."""
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            self.then(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _install() -> None:
    """Wait for PyTorch in this process, then run the ``sitecustomize`` hidden by this file."""
    first, _, last = os.environ[STEPS].partition(":")
    recorder = Recorder(os.environ[FOLDER], first=int(first), last=int(last))
    sys.meta_path.insert(0, _WhenImported("torch.optim.optimizer", recorder.attach))
    here = os.path.dirname(os.path.abspath(__file__))
    others = [entry for entry in sys.path if os.path.abspath(entry) != here]
    hidden = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if hidden is not None and hidden.loader is not None:
        hidden.loader.exec_module(importlib.util.module_from_spec(hidden))


if __name__ == "sitecustomize" and FOLDER in os.environ:
    _install()
