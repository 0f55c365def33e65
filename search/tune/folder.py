"""The folder of a tuning: every decision is on disk before it is carried out, so that nothing is launched twice.

``tune.json`` has the request. ``journal.jsonl`` gets a record when a run is chosen, launched, about to be ended early
and finished. All other files follow from both.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from forerun.search.files.documents import cost_model_version, dump_json
from forerun.search.files.journal import Journal, storage
from forerun.search.tune.run import RunResult, RunState, RunStatus, TuningRun
from forerun.spaces.closing import Closing
from forerun.spaces.documents import read_document
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.locks import held

MANIFEST, JOURNAL, TABLE, CALIBRATION, STUDY = (
    "tune.json",
    "journal.jsonl",
    "runs.csv",
    "calibration.yaml",
    "study.log",
)
RUNS, SEARCH, LOCK = "runs", "search", ".lock"
SCHEMA = 1
FIELDS = frozenset({"run", "event"})


class TuneFolder(Closing):
    """An open folder of one driver at a time; a context manager.

    Parameters
    ----------
    path
        The folder, created if missing.
    inputs
        Inputs of the runs as plain data.
    resume
        Whether a folder that has runs already is continued.

    Raises
    ------
    RequestError
        Another driver uses the folder, it has other files or a tuning of other inputs, or it has a tuning and
        ``resume`` is not set.
    StorageError
        The folder cannot be written.
    """

    def __init__(self, path: Path, inputs: Mapping[str, Any], *, resume: bool) -> None:
        self.path = path
        self.states: dict[int, RunState] = {}
        self._open = ExitStack()
        with ExitStack() as opened, storage(path):
            opened.callback(self.close)
            path.mkdir(parents=True, exist_ok=True)
            self._open.enter_context(held(path / LOCK, f"the tuning {path}"))
            self._check(inputs, resume=resume)
            self._journal = Journal(path / JOURNAL, FIELDS)
            self._open.callback(self._journal.close)
            for record in self._journal.records:
                self._apply(record)
            opened.pop_all()

    def _check(self, inputs: Mapping[str, Any], *, resume: bool) -> None:
        manifest = self.path / MANIFEST
        digest = hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()[:32]
        wanted = {"schema": SCHEMA, "cost_model": cost_model_version(), "digest": digest, "inputs": dict(inputs)}
        if not manifest.exists():
            others = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith("."))
            if others:
                raise RequestError(
                    f"{self.path} is not empty and is not a tuning run ({others[0]}); name another folder"
                )
            write_text(manifest, dump_json(wanted) + "\n")
            return
        if not resume:
            raise RequestError(f"{self.path} is a tuning already; continue it with --resume or name another folder")
        data = read_document(manifest, own=True).data
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise RequestError(f"{manifest} is not what forerun wrote; name another folder")
        changed = [name for name in ("cost_model", "digest") if data.get(name) != wanted[name]]
        if changed:
            asked = json.loads(dump_json(inputs))
            before = data.get("inputs") or {}
            names = sorted(name for name in {*before, *asked} if before.get(name) != asked.get(name))
            raise RequestError(
                f"{self.path} was begun with another {' and '.join(names) or 'version of the cost model'}; "
                "repeat the command as it was, or name another folder"
            )

    def _apply(self, record: Mapping[str, Any]) -> None:
        """Update the state of a run from a record."""
        number, event = int(record["run"]), record["event"]
        if event == "chosen":
            run = TuningRun.from_record(record)
            self.states[number] = RunState(run=run, folder=self.path / RUNS / run.name)
        elif event == "launched":
            self.states[number].handle = str(record["handle"])
        elif event == "ending":
            self.states[number].verdict = (record["status"], str(record["text"]))
        elif event == "ended":
            self.states[number].result = RunResult.from_record(record)

    def _record(self, number: int, event: str, /, **facts: Any) -> None:
        record = {**facts, "run": number, "event": event}
        with storage(self.path / JOURNAL, kept="; runs that are over are kept, continue with --resume"):
            self._journal.append(record)
        self._apply(record)

    def choose(self, run: TuningRun) -> RunState:
        """Record that a run is going to be launched."""
        self._record(run.number, "chosen", **run.to_record())
        return self.states[run.number]

    def launched(self, state: RunState, handle: str) -> None:
        """Record that a run was launched."""
        self._record(state.run.number, "launched", handle=handle)

    def ending(self, state: RunState, status: RunStatus, text: str) -> None:
        """Record that a run is going to be ended early, unless that has begun already."""
        if state.verdict is None:
            self._record(state.run.number, "ending", status=status, text=text)

    def ended(self, state: RunState, result: RunResult) -> None:
        """Record the result of a run."""
        self._record(state.run.number, "ended", **result.to_record())

    @property
    def spent_gpu_s(self) -> float:
        """GPU-seconds of all finished runs."""
        return sum(state.spent_gpu_s for state in self.states.values())

    def close(self) -> None:
        """Let another driver have the folder."""
        self._open.close()
