"""The ten best rows of some twenty searches, read by the frameworks' own parsers and validators.

    python -m benchmarks.real_parsers [--only TEXT] [--with]

The searches are those of ``benchmarks/round_trip.py``. Every row is written in every format of its framework that
expresses it, and read by each that is installed (``make test-frameworks`` installs them): parsed, validated, and
compared with the prediction in degrees, batch and switches. MEGATRON_ARGUMENTS names a copy of Megatron-LM's
``megatron/training/arguments.py`` to compare names and choices of arguments with. Prints a table in Markdown; asked:
all.
"""

import argparse
import dataclasses
import logging
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

from benchmarks.frameworks.readers import READERS
from benchmarks.round_trip import COMMON, SEARCHES, SWITCHED
from forerun.search import search
from forerun.search.board.rows import Row
from forerun.search.formats.contract import Format, Launch
from forerun.search.formats.express import express
from forerun.search.formats.registry import formats_of
from forerun.search.formats.software import carried
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import settings_text
from forerun.spaces.strategies import Context, Software
from forerun.spaces.strategies.software import running


def main() -> None:
    """Print one line per search and format, then how many rows were read as they were predicted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="searches whose model or framework has this text")
    parser.add_argument("--with", dest="switched", action="store_true", help="once more with other switches each")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of the frameworks
    logging.disable()
    print("| model | framework | format | rows | read | first refusal |\n|---|---|---|---:|---:|---|")
    rows = read = 0
    asked = [{**entry, "switches": chosen} for entry, chosen in zip(SEARCHES, SWITCHED, strict=True)]
    for entry in (*SEARCHES, *(asked if args.switched else ())):
        if args.only not in f"{entry['model']} {entry['framework']}":
            continue
        named = f"{entry['framework']} {settings_text(entry.get('switches', {}))}".strip()  # type: ignore[arg-type]
        for name, told in tried(entry).items():
            wrong = [text for text in told if text]
            rows, read = rows + len(told), read + len(told) - len(wrong)
            cells = (entry["model"], named, name, len(told), len(told) - len(wrong), next(iter(wrong), ""))
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print(f"\n{read} of {rows} files are read by their frameworks as they were predicted")


def tried(entry: Mapping[str, object]) -> dict[str, list[str]]:
    """Return, for every format that is installed, what each row of a search was refused for ("": it was read)."""
    fields = {**COMMON, **entry}
    board = search(**fields)  # type: ignore[arg-type]  # values of the fields' types
    context = resolve(Request(**{**fields, "gpus": str(fields["gpus"])})).context  # type: ignore[arg-type]  # as above
    found: dict[str, list[str]] = {}
    for item in formats_of(context.framework):
        for row in board.rows:
            if (told := _read(item, context, row)) is not None:
                found.setdefault(item.name, []).append(told)
    return found


def _read(item: Format, context: Context, row: Row) -> str | None:
    """Return what a row in a format was refused for, "" where it was read, None where nothing can read it."""
    launch = Launch(
        strategy=row.strategy,
        model=context.model,
        workload=context.workload,
        devices_per_node=context.cluster.devices_per_node,
    )
    reader = READERS.get(item.name)
    if reader is None:
        return None
    try:
        files = express(item, launch, context)
    except RequestError:
        return None  # the format says that it cannot
    software = running(context, row.strategy.software).framework
    bare = dataclasses.replace(row.strategy, software=Software.NONE)
    words = item.framework or item.also[0]
    predicted = dataclasses.replace(launch, strategy=bare, switches=carried(software, words))
    try:
        with tempfile.TemporaryDirectory() as folder:
            reader(predicted, files, Path(folder))
    except ImportError as error:
        return None if "installed" in str(error) or isinstance(error, ModuleNotFoundError) else f"{error}"
    except Exception as error:  # whatever a framework raises is what it refuses the file for
        return f"{row.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""


if __name__ == "__main__":
    main()
