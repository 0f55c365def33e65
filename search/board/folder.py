"""The output folder of a search."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

import yaml

from forerun.search.files.documents import SCHEMA, dump_json
from forerun.spaces.documents import read_document
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.locks import held

BOARD = "leaderboard.json"
LARGEST_BOARD = 1 << 28
"""Bytes; the at most 100,000 rows of a search need about half."""


LOCK = ".lock"


@contextmanager
def claimed(folder: Path | None, *, force: bool) -> Iterator[None]:
    """Reserve a folder for the files of this process, from before the computation until all are written.

    ``folder`` is created if missing; None: nothing is written. ``force``: overwrite its files.

    Raises
    ------
    RequestError
        It is a file, cannot be made, is not empty and ``force`` is not set, or another process has reserved it.
    """
    if folder is None:
        yield
        return
    if folder.exists() and not folder.is_dir():
        raise RequestError(f"{folder} is a file; --out needs a folder")
    if force and folder.is_symlink():
        raise RequestError(f"{folder} is a symbolic link; name the folder itself, whose files --force writes over")
    with ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not os.access(folder, os.W_OK):
                raise RequestError(f"{folder} is not writable")
            stack.enter_context(held(folder / LOCK, str(folder)))
            full = any(entry.name != LOCK for entry in folder.iterdir())
        except OSError as error:
            raise RequestError(f"{folder} cannot be used as a folder: {error.strerror}") from None
        if full and not force:
            raise RequestError(f"{folder} is not empty; name another folder or add --force")
        yield


def read_leaderboard(folder: Path) -> Mapping[str, Any]:
    """Return the document of ``write_folder`` in a folder, after checks of its schema and parts.

    Raises
    ------
    RequestError
        The folder has no leaderboard, or a damaged one or of another schema.
    """
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder; name one that `forerun search --out` wrote")
    path = folder / BOARD
    if not path.exists():
        raise RequestError(f"{folder} has no {BOARD}; name a folder that `forerun search --out` wrote")
    data = read_document(path, max_bytes=LARGEST_BOARD, own=True).data
    if isinstance(data, dict) and "searches" in data:
        raise RequestError(f"{folder} is a sweep whose sweep.json is gone; copy the whole folder of the sweep")
    parts = {"schema": int, "request": dict, "space": dict, "leaderboard": list}
    if not isinstance(data, dict):
        raise RequestError(f"{path} is not a leaderboard that forerun wrote: it is not a mapping")
    for name, kind in parts.items():
        if not isinstance(data.get(name), kind):
            raise RequestError(f"{path} is not a leaderboard that forerun wrote: {name} is missing or damaged")
    if data["schema"] != SCHEMA:
        raise RequestError(f"{path} has schema {data['schema']}, but this forerun reads schema {SCHEMA}")
    if not data["leaderboard"]:
        raise RequestError(f"{path} has no rows: nothing was feasible")
    return data


class Written(Protocol):
    """A result that has a document and a table."""

    def to_json(self) -> dict[str, Any]:
        """Return the document, with ``schema``, ``request`` and ``versions``."""

    def to_csv(self) -> str:
        """Return the rows."""


def write_folder(folder: Path, board: Written) -> None:
    """Write a leaderboard as ``leaderboard.json``, ``leaderboard.csv``, ``request.yaml`` and ``versions.json``."""
    document = board.to_json()
    write_text(folder / BOARD, dump_json(document) + "\n")
    write_text(folder / "leaderboard.csv", board.to_csv())
    write_text(folder / "request.yaml", yaml.safe_dump(document["request"], sort_keys=False, allow_unicode=True))
    write_text(folder / "versions.json", dump_json({"schema": document["schema"], **document["versions"]}) + "\n")
