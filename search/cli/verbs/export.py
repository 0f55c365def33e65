"""``forerun export``: launch files of a row of the leaderboard, or of the best of every search of a sweep."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from forerun.search.board.folder import claimed
from forerun.search.board.sweeps import MANIFEST, read_sweep
from forerun.search.files.documents import SCHEMA, dump_json, versions
from forerun.search.formats.contract import Launch
from forerun.search.formats.exporting import Export, describe, export, launch_in, load_launch
from forerun.search.formats.job import Job
from forerun.search.formats.launchers import SLURM
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text

EVERY = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """One launch and its result; ``search``: number of the search in a sweep."""

    launch: "Launch"
    result: Export
    search: int | None = None

    @property
    def folder(self) -> str:
        """Folder of its files below ``--out``."""
        return "" if self.search is None else f"search-{self.search}"


def run(args: argparse.Namespace) -> int:
    """Write the files and name them."""
    if args.search == EVERY:
        exports, refused = _every(args)
    else:
        launch, context = load_launch(args.run, args.rank, args.search)
        result = export(launch, context, args.format, _job(args))
        exports, refused = [Exported(launch=launch, result=result)], list(result.refused.values())
    if not any(one.result.files for one in exports):
        raise RequestError("\n".join(refused) or f"no search of {args.run} found anything")
    job = _job(args)
    batches = any(SLURM in files for one in exports for files in one.result.files.values())
    if job.platform == "slurm" and job.queued and not batches:
        raise RequestError(f"--format {args.format} writes no script of Slurm: leave out its options")
    with claimed(args.out, force=args.force):
        files = [_write(args.out / one.folder, one.result, folders=args.format == EVERY) for one in exports]
    launches = []
    for one, written in zip(exports, files, strict=True):
        facts = {"rank": args.rank, "launch": describe(one.launch), "files": written, "refused": one.result.refused}
        facts |= {"notes": dict(one.result.notes)} if one.result.notes else {}
        launches.append(facts if one.search is None else {"search": one.search, **facts})
        if not args.json:
            _say(one, written)
    if args.json:
        document = {"searches": launches, "refused": refused} if args.search == EVERY else launches[0]
        print(dump_json({"schema": SCHEMA, **document, "versions": versions()}))
        return 0
    for reason in refused:
        print(f"forerun: {reason}", file=sys.stderr)
    return 0


def _job(args: argparse.Namespace, below: str = "") -> "Job":
    """Return the folder of a launch (``below`` the export's) and its options of Slurm."""
    options = {name: getattr(args, name) for name in ("partition", "account", "time", "container", "platform")}
    return Job(folder=str((args.out / below).absolute()), **options)


def _every(args: argparse.Namespace) -> tuple[list[Exported], list[str]]:
    """Return the launches of all searches of a sweep that have rows, and the reasons of others."""
    from forerun.search.cli.progress import show_progress

    sweep = read_sweep(args.run)
    ended = {search.number: search for search in sweep.searches() if search.record.get("rows")}
    exports, refused = [], []
    for place, (number, search) in enumerate(sorted(ended.items())):
        show_progress("exporting", place, len(ended))
        try:
            name, source = f"search {number} of {args.run.resolve().name}", args.run / MANIFEST
            launch, context = launch_in(sweep.board(search), args.rank, name=name, source=source)
            result = export(launch, context, args.format, _job(args, f"search-{number}"))
        except RequestError as error:
            refused.append(f"search {number}: {error}")
            continue
        exports.append(Exported(launch=launch, result=result, search=number))
    return exports, refused


def _write(out: Path, result: Export, *, folders: bool) -> dict[str, list[str]]:
    """Write the files of a launch, with ``folders`` each format in a separate one; return their paths."""
    written: dict[str, list[str]] = {}
    for name, files in result.files.items():
        folder = out / name if folders else out
        folder.mkdir(exist_ok=True, parents=True)
        for file, text in files.items():
            write_text(folder / file, text)
        written[name] = [str(folder / file) for file in files]
    return written


def _say(one: Exported, written: dict[str, list[str]]) -> None:
    where = f"{one.folder}: " if one.folder else ""
    print(f"{where}{one.launch.strategy}  ({one.launch.strategy.devices} GPUs on {one.launch.nodes} nodes)")
    for name, paths in written.items():
        print(f"{name}: {' '.join(paths)}")
    for note in one.result.notes.values():
        print(f"forerun: note: {note}", file=sys.stderr)
