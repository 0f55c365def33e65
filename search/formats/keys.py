"""A format as a table of keys with meaning, unit and decision.

``LaunchFacts`` has the settings of one file in terms of such a table; ``formats/facts.py`` makes a strategy from them.
A launcher is a table, the reader of its syntax and, for keys that depend on each other, one function.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from forerun.search.formats.contract import Launch, LaunchFile
from forerun.search.formats.settings import LaunchSettings
from forerun.search.formats.syntax import script_notes
from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import SPELLING


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A fact of a run that a key of a launch file can decide."""

    title: str
    """Name on the page of keys."""
    meaning: str = ""
    """Meaning of its keys, unless a key overrides it (empty: the title)."""
    unit: str = ""
    """Unit of its numbers; empty for keys with words."""


DEGREES = ("tp", "pp", "cp", "ep", "etp", "vpp", "dp", "replicate", "shard")
"""Decisions on degrees; degrees of several keys multiply."""
TELLING = (*DEGREES, "nodes", "devices_per_node", "devices", "mbs", "accumulation", "local_batch", "global_batch")
"""Decisions of which a launch file states at least one."""


@cache
def decisions() -> Mapping[str, Decision]:
    """Return all decisions by name; facts of the model begin with ``model.``."""
    tables = package_yaml("forerun.search.formats", "data", "decisions.yaml")
    facts = {f"model.{name}": {"title": f"model: {name}", **fields} for name, fields in tables.pop("facts").items()}
    named = {name: fields for table in tables.values() for name, fields in table.items()}
    return {name: Decision(**fields) for name, fields in (named | facts).items()}


REST = -1
"""Value of a degree that is the quotient of the devices by other degrees."""

YES = {"true": True, "1": True, "false": False, "0": False, "none": False, "": False}


def switched_on(value: Any) -> dict[str, Any]:
    """Return the words of a flag that decides ``value`` if on, and nothing if off."""
    return {word: value if on else None for word, on in YES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchKey:
    """One setting. Degrees of several keys multiply; for other decisions the first stated key of the table counts."""

    names: tuple[str, ...]
    """Its dotted name, older spellings after it."""
    decides: str
    """One of ``decisions()``."""
    meaning: str = ""
    """Meaning (empty: the decision's)."""
    unit: str = ""
    """Unit of its numbers (empty: the decision's)."""
    words: Mapping[str, Any] | None = None
    """Values of its words (None: the key is a number); a word with value None decides nothing."""
    least: int = 1
    """Smallest accepted number; 0 then means 1, -1 the quotient by other degrees."""
    says: str = ""
    """A note if the key is set."""
    written: bool | Callable[[Launch], bool] = True
    """Whether, or for which launches, the key is also written (older or second spellings are not)."""

    @property
    def description(self) -> str:
        """Meaning of the key or its decision."""
        decision = decisions()[self.decides]
        return self.meaning or decision.meaning or decision.title

    @property
    def counts(self) -> str:
        """Unit of its numbers; empty for words."""
        return "" if self.words is not None else self.unit or decisions()[self.decides].unit


def decide(decides: str, *names: str, words: Mapping[str, Any] | None = None, **fields: Any) -> LaunchKey:
    """Return the key of a decision under one of ``names``; ``fields``: others of ``LaunchKey``."""
    return LaunchKey(names=names, decides=decides, words=words, **fields)


def above_one(axis: str) -> Callable[[Launch], bool]:
    """Return the condition that a launch has more than one rank, or stage, along ``axis``."""
    return lambda launch: getattr(launch.strategy, axis) > 1


def shards(launch: Launch) -> bool:
    """Whether replicas of a launch share states."""
    return launch.strategy.zero > 0


def facts_of(names: Mapping[str, str], section: str = "") -> tuple[LaunchKey, ...]:
    """Return the keys of a ``section`` that state sizes of the model; ``names``: key: fact."""
    return tuple(decide(f"model.{fact}", f"{section}{key}") for key, fact in names.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """Settings of a file.

    Attributes
    ----------
    values
        Values by the names of the table.
    spelled
        Names in the file by different names in the table.
    repeated
        Settings overridden by later ones.
    notes, defaults
        Remarks for the user, and assumed values.
    """

    values: Mapping[str, Any]
    spelled: Mapping[str, str] = field(default_factory=dict)
    repeated: frozenset[str] = frozenset()
    notes: Sequence[str] = ()
    defaults: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A format as data.

    ``syntax`` returns the settings of a file by dotted name; ``adjust`` (None: nothing) determines joint decisions of
    keys; ``assumed`` has the tool's defaults by decision; ``harmless`` tests whether a setting has no effect on a
    strategy. Settings that change speed or memory are listed under the launcher's name in
    ``data/switches/unmodelled.yaml``, or under the first of ``frameworks``, whose switches the settings are. ``left``
    is the word that leaves a setting to the program. ``bare_flags``: a flag has no value. ``format``: fields of
    ``Format``.
    """

    name: str
    version: str
    title: str
    keys: tuple[LaunchKey, ...]
    syntax: Callable[[LaunchFile], Mapping[str, Any] | Stated]
    marks: Callable[[LaunchFile], bool]
    harmless: Callable[[str], Any]
    adjust: "Callable[[LaunchFacts], None] | None" = None
    assumed: Mapping[str, Any] = field(default_factory=dict)
    frameworks: tuple[str, ...] = ()
    left: str = ""
    bare_flags: bool = False
    run: Mapping[str, Any] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    format: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class LaunchFacts:
    """Decisions of one file.

    Attributes
    ----------
    launcher
        The table; an adjustment may replace it by a more specific table.
    values
        Values by decision.
    stated, open
        Decisions stated by the file, and decisions left to the program.
    notes, defaults
        Remarks for the user, and assumed values.
    switches
        Software settings of the file.
    """

    source: LaunchFile
    launcher: Launcher
    file: Stated
    settings: LaunchSettings
    values: dict[str, Any] = field(default_factory=dict)
    stated: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    switches: dict[str, str] = field(default_factory=dict)

    def get(self, decision: str, otherwise: Any = None) -> Any:
        """Return the value of a decision; ``otherwise`` if open."""
        value = self.values.get(decision)
        return otherwise if value is None else value

    def assume(self, decision: str, value: Any, why: str) -> None:
        """Set an open decision, with its reason."""
        if self.get(decision) is None:
            self.values[decision] = value
            shown = SPELLING[decision][int(value)] if decision in SPELLING else value
            self.defaults.append(f"{decision}={shown}, {why}")

    def key(self, decision: str) -> str:
        """Return the name of the first key of a decision."""
        return next((key.names[0] for key in self.launcher.keys if key.decides == decision), decision)

    def missing(self, *decisions: str) -> None:
        """Refuse a file without a decision required by its tool.

        Raises
        ------
        RequestError
            A decision is open; the text names its key.
        """
        for decision in decisions:
            if self.get(decision) is None:
                name, title = self.source.name, self.launcher.title
                raise RequestError(f"{name}: {self.key(decision)} is missing; is it a launch file of {title}?")


def read_keys(launcher: Launcher, source: LaunchFile) -> LaunchFacts:
    """Return the decisions of a file.

    Raises
    ------
    RequestError
        A value has the wrong type, or no key of a degree or a batch is stated.
    """
    file = launcher.syntax(source)
    file = file if isinstance(file, Stated) else Stated(values=file)
    open_keys = [name for name, value in file.values.items() if launcher.left and value == launcher.left]
    values = {**file.values, **dict.fromkeys(open_keys)}
    settings = LaunchSettings(values, source.name, bare_flags=launcher.bare_flags)
    facts = LaunchFacts(source=source, launcher=launcher, file=file, settings=settings)
    facts.notes += dict.fromkeys((*file.notes, *script_notes(source)))
    deciding = {name for key in launcher.keys for name in key.names}
    facts.defaults += [
        f"{name}: {launcher.left}, left to the trainer" for name in sorted(open_keys) if name in deciding
    ]
    facts.defaults += file.defaults
    for key in launcher.keys:
        value = _value(key, facts.settings)
        if value is None:
            if set(key.names) & {*open_keys}:
                facts.open.add(key.decides)
            continue
        facts.stated.add(key.decides)
        if key.says and value not in (1, False):
            facts.notes.append(key.says.format(value=value))
        if key.decides in DEGREES and key.decides in facts.values:
            before = facts.values[key.decides]
            facts.values[key.decides] = REST if REST in (before, value) else before * value
        else:
            facts.values.setdefault(key.decides, value)
    if launcher.adjust is not None:
        launcher.adjust(facts)
    if not (facts.stated | facts.open) & {*TELLING, "mbs_tokens", "global_tokens", "zero"}:
        names = [key.names[0] for key in launcher.keys if key.decides in ("tp", "mbs", "mbs_tokens", "global_batch")]
        raise RequestError(
            f"{source.name} states no degree and no batch ({', '.join(names[:4])}, ...): it is not a launch file of "
            f"{launcher.title}"
        )
    for decision, value in launcher.assumed.items():
        facts.assume(decision, value, f"as {launcher.title} assumes")
    return facts


def _value(key: LaunchKey, settings: LaunchSettings) -> Any:
    """Return the decision of a key in one file; None if the key is missing or decides nothing."""
    if key.decides.startswith("model."):
        fact = next(iter(settings.facts({name: name for name in key.names}).values()), None)
        return key.words.get(fact, fact) if key.words and isinstance(fact, str) else fact
    if key.words is None:
        number = settings.whole(*key.names, least=key.least)
        if number == 0 and key.least < 0:
            raise settings.wrong(key.names, "must be at least 1, or -1 for what is left, but got 0")
        return 1 if number == 0 and key.decides in DEGREES else number
    stated = settings.raw(*key.names)
    if settings.bare_flags and "true" in key.words:
        stated = settings.flag(*key.names)
        return None if stated is None else key.words[str(stated).lower()]
    if stated is None or isinstance(stated, list | tuple | dict):
        return None
    if "*" in key.words:
        word = str(stated).strip().lower()
        return key.words.get(word, key.words["*"])
    words = {word.lower(): meaning for word, meaning in key.words.items()}
    chosen = settings.one_of(key.names, {**words, **YES} if {"true", "false"} & set(words) else words)
    return None if chosen is None else words.get(chosen)
