"""A format as one table of its keys: what each means, in which unit, and what of a run it decides.

``LaunchFacts`` takes the settings of one file through such a table; ``formats/facts.py`` makes a strategy of them. A
launcher is a table, the reader of its syntax and, where keys depend on each other, one function between both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.settings import LaunchSettings
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import SPELLING, Recompute

DEGREES = {
    "tp": "tensor-parallel degree",
    "pp": "pipeline stages",
    "cp": "context-parallel degree",
    "ep": "expert-parallel degree",
    "etp": "tensor-parallel degree of experts",
    "vpp": "virtual stages of a rank",
    "dp": "replicas",
    "replicate": "sets of replicas with copies of the same states",
    "shard": "replicas that share one set of states",
}
SIZES = {
    "nodes": "nodes",
    "devices_per_node": "devices of a node",
    "devices": "devices",
    "mbs": "micro-batch",
    "accumulation": "microbatches of a step",
    "local_batch": "batch of a replica",
    "global_batch": "global batch",
    "mbs_tokens": "micro-batch in tokens",
    "global_tokens": "global batch in tokens",
    "seq_len": "sequence length",
}
CHOICES = {
    "zero": "what is sharded",
    "sp": "sequence parallel",
    "recompute": "recompute",
    "recompute_layers": "layers that are recomputed",
    "precision": "precision",
    "schedule": "pipeline schedule",
    "split": "layers of stages",
    "adapter": "what is trained",
}
DECISIONS = {**DEGREES, **SIZES, **CHOICES}
"""What a key can decide (``model.NAME``: a fact of the model)."""

REST = -1
"""A degree that takes what the other degrees leave."""

YES = {"true": True, "1": True, "false": False, "0": False, "none": False, "": False}
RECOMPUTED = {word: Recompute.FULL if on else Recompute.NONE for word, on in YES.items()}


def switched_on(value: str) -> dict[str, str | None]:
    """Return the words of a flag that decides ``value`` where it is on, and nothing where it is off."""
    return {word: value if on else None for word, on in YES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchKey:
    """One setting.

    ``names``: its dotted name, older spellings after it. ``decides``: one of ``DECISIONS`` or ``model.NAME``;
    degrees of several keys multiply, of everything else the first key of the table that is stated counts. ``words``:
    what the words of a setting mean (None: it is a number); a word that means None decides nothing. ``least``: the
    smallest number that it takes; 0 then means 1, -1 what other degrees leave. ``says``: a note for whoever sets it.
    """

    names: tuple[str, ...]
    decides: str
    meaning: str
    unit: str = ""
    words: Mapping[str, Any] | None = None
    least: int = 1
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """A format as data.

    ``syntax`` returns the settings of a file by dotted name; ``adjust`` (None: nothing) settles what keys decide
    together; ``assumed`` is what the tool takes where a file is silent, by decision; ``harmless`` says of a
    setting that it decides nothing of a strategy. Those that change speed or memory are listed under its
    name in ``data/switches/unmodelled.yaml``.
    """

    name: str
    version: str
    title: str
    keys: tuple[LaunchKey, ...]
    syntax: Callable[[LaunchFile], Mapping[str, Any]]
    marks: Callable[[LaunchFile], bool]
    harmless: Callable[[str], bool]
    adjust: "Callable[[LaunchFacts], None] | None" = None
    assumed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class LaunchFacts:
    """What the keys of one file decide: ``values`` by decision, ``stated`` those that the file itself states, and what
    there is to say of them."""

    source: LaunchFile
    settings: LaunchSettings
    values: dict[str, Any] = field(default_factory=dict)
    stated: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)

    def get(self, decision: str, otherwise: Any = None) -> Any:
        """Return what was decided."""
        value = self.values.get(decision)
        return otherwise if value is None else value

    def assume(self, decision: str, value: Any, why: str) -> None:
        """Decide what no key did, and say why."""
        if self.get(decision) is None:
            self.values[decision] = value
            shown = SPELLING[decision][int(value)] if decision in SPELLING else value
            self.defaults.append(f"{decision}={shown}, {why}")


def read_keys(launcher: Launcher, source: LaunchFile) -> LaunchFacts:
    """Return what a file decides.

    Raises:
        RequestError: a value is of the wrong type, or no key of the table that decides a degree or a batch is stated.
    """
    facts = LaunchFacts(source=source, settings=LaunchSettings(launcher.syntax(source), source.name))
    for key in launcher.keys:
        value = _value(key, facts.settings)
        if value is None:
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
    if not facts.stated & ({*DEGREES, *SIZES} - {"seq_len"}):
        names = [key.names[0] for key in launcher.keys if key.decides in ("tp", "mbs", "mbs_tokens", "global_batch")]
        raise RequestError(
            f"{source.name} states no degree and no batch ({', '.join(names[:4])}, ...): it is no launch file of "
            f"{launcher.title}"
        )
    for decision, value in launcher.assumed.items():
        facts.assume(decision, value, f"as {launcher.title} assumes")
    return facts


def _value(key: LaunchKey, settings: LaunchSettings) -> Any:
    """Return what a key decides in one file, None where it is not stated or decides nothing."""
    if key.decides.startswith("model."):
        return next(iter(settings.facts({name: name for name in key.names}).values()), None)
    if key.words is None:
        number = settings.whole(*key.names, least=key.least)
        if number == 0 and key.least < 0:
            raise settings.wrong(key.names, "must be at least 1, or -1 for what is left, but got 0")
        return 1 if number == 0 and key.decides in DEGREES else number
    stated = settings.raw(*key.names)
    if stated is None or isinstance(stated, list | tuple | dict):
        return None
    if "*" in key.words:
        word = str(stated).strip().lower()
        return key.words.get(word, key.words["*"])
    chosen = settings.one_of(key.names, [*key.words, *YES] if set(YES) & set(key.words) else key.words)
    return None if chosen is None else key.words.get(chosen)
