"""Import of launch files from disk."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from forerun.search.formats.contract import Files, Format, Imported, LaunchFile
from forerun.search.formats.launchers import stated_facts
from forerun.search.formats.shell import NOTHING, SCRIPTS, Given
from forerun.search.formats.syntax import is_script
from forerun.search.formats.table import FORMATS, format_named, recognised
from forerun.spaces.errors import RequestError
from forerun.spaces.reading import MAX_BYTES, read_text

_DEGREE = re.compile(r"(?:^|[.:-])(?:(?:\w+[-_])*parallel|[tpcesd]p|ulysses)[-_](?:size|degree):?$")
"""Names of degrees; a file with an unknown degree is refused."""
_ARGUMENT = re.compile(r"\$\{?[1-9@*]")
"""An argument of a script."""
LARGEST_LOG = 1 << 28
"""Most bytes of a training log; a month of steps at a line each needs a tenth."""

FOLDER_FILES = (".yaml", ".yml", ".json", ".toml", ".py", *SCRIPTS)
MOST_FILES = 32


def import_files(
    paths: Sequence[Path],
    *,
    format: str | None = None,
    gpus: int | None = None,
    entry: str | None = None,
    given: Given = NOTHING,
) -> Imported:
    """Read a configuration: its file with its launch scripts, or the folder of both.

    ``format`` names the format if it cannot be recognised, ``gpus`` the number of devices if no file states it,
    ``entry`` one of several functions of a Python file, ``given`` the arguments and variables of a script.

    Raises
    ------
    RequestError
        A file cannot be read, or has no strategy.
    """
    files: dict[str, str] = {}
    for path in paths:
        for file in _expanded(path):
            files[str(file)] = read_file(file)
    return import_texts(files, format=format, gpus=gpus, entry=entry, given=given)


def import_texts(
    files: Files,
    *,
    format: str | None = None,
    gpus: int | None = None,
    entry: str | None = None,
    given: Given = NOTHING,
) -> Imported:
    """Read texts by file name; see ``import_files``.

    Raises
    ------
    RequestError
        There is no text, or a text has no strategy.
    """
    source = _launch_file(files, gpus, entry, given)
    chosen, source = _recognised(source) if format is None else (format_named(format), source)
    main = source.name
    try:
        imported = _read(chosen, source)
    except RecursionError:
        raise RequestError(f"{main} is nested deeper than any configuration") from None
    imported = _with_data(imported, chosen, files)
    if joined := next((name for name in imported.unknown if len(re.findall(r"[a-z\d]-{2}[a-z]", name)) > 1), None):
        raise RequestError(f"{main} has several options in one word, {joined[:60]}...: blanks between them are missing")
    missed = [name for name, value in imported.unknown.items() if _DEGREE.search(name) and str(value) != "1"]
    if missed:
        raise RequestError(
            f"{main} has {', '.join(missed[:3])}, which {chosen.name} does not: it is the file of another tool, or the "
            "name is misspelt; its degrees would be lost"
        )
    return imported


def _launch_file(files: Files, gpus: int | None, entry: str | None, given: Given) -> LaunchFile:
    """Return the main file of a run with its further files; here-documents of a script are files, too."""
    if not files:
        raise RequestError("there is no file to import; name a configuration, a launch script or a folder of them")
    for name, text in files.items():
        if any("\ud800" <= char <= "\udfff" for char in text):
            raise RequestError(f"{name} is not UTF-8 text")
    main = _main(files)
    scripts = {name: text for name, text in files.items() if name != main and Path(name).suffix.lower() in SCRIPTS}
    others = {name: text for name, text in files.items() if name != main and name not in scripts}
    given = dataclasses.replace(given, scripts={Path(name).name: text for name, text in scripts.items()})
    source = LaunchFile(name=main, text=files[main], beside=scripts, others=others, gpus=gpus, entry=entry, given=given)
    return dataclasses.replace(source, others={**source.script().files, **others}) if is_script(source) else source


def _recognised(source: LaunchFile) -> tuple[Format, LaunchFile]:
    """Return the format of a file, and the file; for an unknown script, of the configuration that it writes."""
    try:
        return recognised(source), source
    except RequestError:
        for name, text in source.others.items() if is_script(source) else ():
            texts = {source.name: source.text, **source.beside}
            others = {other: text for other, text in source.others.items() if other != name}
            written = dataclasses.replace(source, name=name, text=text, beside=texts, others=others)
            if item := next((item for item in FORMATS if item.recognise(written)), None):
                return item, written
        raise


def _read(chosen: Format, source: LaunchFile) -> Imported:
    """Read a file; a script that lacks required arguments is read with its defaults."""
    try:
        return chosen.read(source)
    except RequestError as error:
        if source.given.arguments or not any(map(_ARGUMENT.search, source.scripts.values())):
            raise
        try:
            imported = chosen.read(dataclasses.replace(source, given=dataclasses.replace(source.given, bare=True)))
        except RequestError:
            raise error from None
    note = "read as started without arguments, by the script's own defaults; others are given after --"
    return dataclasses.replace(imported, notes=(note, *imported.notes))


def _with_data(imported: Imported, item: Format, files: Files) -> Imported:
    """Add the document length stated by a launch script of forerun.

    It applies if the files keep attention inside documents; a note reports a missing length.
    """
    facts, notes = stated_facts(*files.values()), imported.notes
    packed = item.packs and next(filter(None, (re.search(item.packs, text, re.M) for text in files.values())), None)
    if not packed:
        facts.pop("documents", None)
    elif "documents" not in {**facts, **imported.workload}:
        notes = (
            *notes,
            f"{packed[0].strip(', ')} keeps attention inside documents, whose length is not stated: give --documents",
        )
    return dataclasses.replace(imported, workload={**facts, **imported.workload}, notes=notes)


def _main(files: Files) -> str:
    """Return the main configuration.

    It is the file that names the others, else the first of joint files, else the first script.
    """
    plain = [name for name in files if Path(name).suffix.lower() not in SCRIPTS]
    if len(plain) > 1:
        bases = {name: Path(name).name for name in plain}
        naming = [name for name in plain if all(bases[other] in files[name] for other in plain if other != name)]
        joining = [item for item in FORMATS if item.joins]
        naming = naming or [
            name for name in plain if any(item.recognise(LaunchFile(name=name, text=files[name])) for item in joining)
        ]
        if naming:
            return naming[0]
        raise RequestError(f"{', '.join(plain)} are several configurations; import one of them at a time")
    launch = [name for name in files if Path(name).name == "launch.sh"]
    return (plain or launch or list(files))[0]


def _expanded(path: Path) -> list[Path]:
    """Return a file, or the files of a folder that may be configurations or scripts."""
    try:
        if not path.is_dir():
            return [path]
        paths = sorted(file for file in path.iterdir() if file.suffix.lower() in FOLDER_FILES)
    except (OSError, ValueError) as error:
        raise RequestError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not paths:
        raise RequestError(f"{path} has no configuration and no launch script")
    if len(paths) > MOST_FILES:
        raise RequestError(f"{path} has {len(paths)} files; name the configuration")
    return paths


def read_file(path: Path) -> str:
    """Return the text of a file: 4 MB at most, of a log (``.log``, ``.out``, ``.txt``) more.

    Raises
    ------
    RequestError
        The file is missing, no regular file, too large, empty, or no UTF-8 text.
    """
    log = path.suffix.lower() in (".log", ".out", ".txt")
    text = read_text(path, most=LARGEST_LOG if log else MAX_BYTES, kind="a log" if log else "a configuration")
    if not text.strip():
        raise RequestError(f"{path} is empty")
    return text
