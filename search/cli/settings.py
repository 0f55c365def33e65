"""Defaults of a user: ``forerun.toml`` in the folder, then in the user's configuration folder."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from forerun.search.cli.flags.declaration import Flag, UserDefault
from forerun.search.cli.flags.kinds import Unreadable
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.escaping import quoted

NAME = "forerun.toml"
KEYS = ("cluster", "framework", "usd-per-gpu-hour", "verbosity")
VERBOSITIES = ("quiet", "brief", "verbose")


def user_defaults(flags: Iterable[Flag]) -> dict[str, UserDefault]:
    """Return the values of flags in files of defaults, by the name of the parsed value."""
    known = {flag.name.lstrip("-"): flag for flag in flags if flag.configurable}
    if not known:
        return {}
    defaults: dict[str, UserDefault] = {}
    for path in reversed(list(_files())):
        for key, value in _read(path).items():
            text = f"{key} {value} (from {path})"
            if key == "verbosity":
                others = (word for word in VERBOSITIES if word in known)
                defaults |= {word: UserDefault(value=word == value, text="") for word in others}
            elif key in known:
                defaults[known[key].dest] = UserDefault(value=_value(known[key], value, path), text=text)
    return defaults


def _files() -> Iterator[Path]:
    """Yield the existing files, highest precedence first."""
    import platformdirs

    for path in (Path(NAME), platformdirs.user_config_path("forerun") / NAME):
        if path.is_file():
            yield path


def _read(path: Path) -> Mapping[str, Any]:
    import tomllib

    from forerun.spaces.reading import read_text

    try:
        document = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"{path}: {error}") from None
    for key, value in document.items():
        if key not in KEYS:
            raise RequestError(f"{path}: {unknown('default', key, KEYS)}")
        if key == "verbosity" and value not in VERBOSITIES:
            raise RequestError(f"{path}: {unknown('verbosity', str(value), VERBOSITIES)}")
    return document


def _value(flag: Flag, value: Any, path: Path) -> Any:
    if isinstance(value, bool | list | dict):
        raise RequestError(f"{path}: {flag.name.lstrip('-')} takes one value, but got {quoted(str(value))}")
    try:
        return flag.kind.read(str(value))
    except Unreadable as error:
        raise RequestError(f"{path}: {flag.name.lstrip('-')} {error}") from None
