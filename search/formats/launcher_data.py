"""Tables of launchers as data: a file in ``data/launchers`` each, and ``data/keys.yaml`` for common keys.

A key is a mapping that begins with its decision and its name or names, the newest first. ``words`` are values of its
words (or the name of such a table), ``switch`` is the decision of a flag that is on, ``schedules`` names software whose
spellings of schedules the words are, ``written`` the launches with this key. ``{facts: {name: fact}}`` stands for keys
of sizes of the model, ``{use: name}`` for keys of ``data/keys.yaml``.

``marks`` are the ways to recognise a file (``marked_by``), ``harmless`` is a pattern or tables of harmless settings,
and ``format`` has fields of ``Format`` for a written one.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from forerun.search.formats.contract import Launch, LaunchFile
from forerun.search.formats.harmless import harmless_by
from forerun.search.formats.keys import (
    YES,
    Launcher,
    LaunchFacts,
    LaunchKey,
    Stated,
    above_one,
    facts_of,
    shards,
    switched_on,
)
from forerun.search.formats.shell import SCRIPTS
from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.strategies import SPELLING, Recompute, Schedule
from forerun.spaces.strategies.axes import schedules_in

Conditions = Mapping[str, Callable[[Launch], bool]]
"""Launches that have a key, by name."""
TABLES: Mapping[str, Mapping[str, Any]] = {
    "flag": YES,
    "flag number": {word: int(on) for word, on in YES.items()},
    "recomputed": {word: Recompute.FULL if on else Recompute.NONE for word, on in YES.items()},
    "stages": {str(stage): stage for stage in range(4)},
    "granularities": {"full": Recompute.FULL, "selective": Recompute.SELECTIVE},
    "types": {
        **{"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float8": "fp8"},
        **{name: name for name in ("bf16", "fp16", "fp32", "fp8")},
    },
}
"""Values of words by the name of the table."""
CHOICES: Mapping[str, type[Recompute] | type[Schedule]] = {"recompute": Recompute, "schedule": Schedule}
"""Decisions whose values in data are spelled as in strategies."""
KINDS: Mapping[str, Sequence[str]] = {
    "script": SCRIPTS,
    "yaml": (".yaml", ".yml"),
    "json": (".json",),
    "toml": (".toml",),
    "python": (".py",),
}
"""Endings of file names by kind of file."""


def read_launcher(
    name: str,
    *,
    syntax: Callable[[LaunchFile], Mapping[str, Any] | Stated],
    marks: Callable[[LaunchFile], bool] | None = None,
    harmless: Callable[[str], bool] | None = None,
    adjust: Callable[[LaunchFacts], None] | None = None,
    first: Sequence[LaunchKey] = (),
    **fields: Any,
) -> Launcher:
    """Read the table of a launcher.

    Parameters
    ----------
    name
        Name of the launcher, and of its file.
    syntax, adjust
        See ``Launcher``.
    marks, harmless
        See ``Launcher`` (None: those of the file).
    first
        Keys before those of the file.
    **fields
        Fields of ``Launcher`` missing in the file.
    """
    data = package_yaml("forerun.search.formats", "data", "launchers", f"{name}.yaml") | fields
    assumed = {decision: _value(decision, word) for decision, word in data.pop("assumed", {}).items()}
    rule, ways = data.pop("harmless", [name]), data.pop("marks", [])
    return Launcher(
        name=name,
        keys=(*first, *_keys(data.pop("keys"), {})),
        syntax=syntax,
        marks=marks or marked_by(*ways),
        harmless=harmless or (re.compile(rule).match if isinstance(rule, str) else harmless_by(*rule)),
        adjust=adjust,
        assumed=assumed,
        frameworks=tuple(data.pop("frameworks", ())),
        **data,
    )


def marked_by(*ways: Mapping[str, Any]) -> Callable[[LaunchFile], bool]:
    """Build the test of whether a file is one of a launcher's.

    Parameters
    ----------
    *ways
        Ways to recognise it. Keys: ``in``: kinds of files (none: any); ``has``: a pattern, or several that all match;
        ``lacks``: a pattern that does not match; ``two``: a pattern with at least two different matches.
    """
    return lambda source: any(_marked(way, source) for way in ways)


def _marked(way: Mapping[str, Any], source: LaunchFile) -> bool:
    endings = [ending for kind in way.get("in", "").split() for ending in KINDS[kind]]
    if endings and source.suffix not in endings:
        return False
    present = way.get("has", [])
    patterns = [present] if isinstance(present, str) else present
    return (
        all(re.search(pattern, source.text, re.MULTILINE) for pattern in patterns)
        and not ("lacks" in way and re.search(way["lacks"], source.text, re.MULTILINE))
        and ("two" not in way or len({*re.findall(way["two"], source.text, re.MULTILINE)}) > 1)
    )


def shared_keys(name: str, conditions: Conditions | None = None) -> tuple[LaunchKey, ...]:
    """Return common keys of several launchers; ``conditions``: named conditions of launches."""
    return tuple(_keys(_shared()[name], conditions or {}))


@cache
def _shared() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    entries: Mapping[str, Sequence[Mapping[str, Any]]] = package_yaml("forerun.search.formats", "data", "keys.yaml")
    return entries


def _keys(entries: Iterable[Mapping[str, Any]], conditions: Conditions) -> Iterator[LaunchKey]:
    for entry in entries:
        if "use" in entry:
            yield from shared_keys(entry["use"], conditions)
        elif "facts" in entry:
            yield from facts_of(entry["facts"])
        else:
            yield _key(dict(entry), conditions)


def _key(entry: dict[str, Any], conditions: Conditions) -> LaunchKey:
    decides = next(iter(entry))
    names, written = entry.pop(decides), entry.pop("written", True)
    words: dict[str, Any] | None = None
    if "schedules" in entry:
        words = {spelled: schedule for schedule, spelled in schedules_in(entry.pop("schedules")).items()}
    elif "switch" in entry or "words" in entry:
        words = switched_on(_value(decides, entry.pop("switch"))) if "switch" in entry else {}
        tables = entry.pop("words", [])
        for table in tables if isinstance(tables, list) else [tables]:
            words |= TABLES[table] if isinstance(table, str) else {k: _value(decides, v) for k, v in table.items()}
    if isinstance(written, str):
        written = {"shards": shards, **conditions}.get(written) or above_one(written)
    return LaunchKey(
        names=(names,) if isinstance(names, str) else tuple(names),
        decides=decides,
        words=words,
        written=written,
        **entry,
    )


def _value(decision: str, word: Any) -> Any:
    """Return the value of a spelling in data: a choice of a strategy, else the text."""
    if decision not in CHOICES or word is None:
        return word
    number = next(number for number, spelled in SPELLING[decision].items() if spelled == word)
    return CHOICES[decision](number)
