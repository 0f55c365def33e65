"""Parser of the string form of a strategy."""

import re

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.escaping import shown
from forerun.spaces.strategies.axes import (
    ALL_REPLICAS,
    MODULES,
    SOFTWARE,
    SPELLING,
    Placement,
    Recompute,
    Schedule,
    Software,
    Split,
    in_groups,
)
from forerun.spaces.strategies.stage_choices import common_recompute, parse_recompute
from forerun.spaces.strategies.stage_offload import OFFLOAD_WORDS, parse_offload
from forerun.spaces.strategies.strategy import Strategy

_WORD = re.compile(r"(dp|tp|pp|cp|etp|ep|mbs|vpp|zero|shard)=?(\d+)")
_HALVES = re.compile(r"(dp|tp|mbs)=?(\d+)/(\d+)")
_OFFLOAD = re.compile(rf"({'|'.join(OFFLOAD_WORDS)})=([\d.*]+(?:,[\d.*]+)*)(?=[\s,]|$)", re.IGNORECASE)
MOST_DIGITS, MOST_STAGES = 9, 10_000
"""Limits of digits of a number, and of pipeline stages (the limit of a model's layers, ``models.schema``)."""
_ENTRY = r"(?:none|selective|full|[a-z_]+(?:\+[a-z_]+)*)(?::\d+)?(?:\*\d+)?"
_STAGES = re.compile(rf"recompute=({_ENTRY}(?:,{_ENTRY})+)(?=[\s,]|$)", re.IGNORECASE)


def parse_named(axis: str, text: str) -> int:
    """Return the number of the choice of a named axis (``schedule``, ``recompute``, ``split``, ``placement``).

    >>> parse_named("recompute", "full")
    2

    Raises:
        RequestError: the choice does not exist.
    """
    names = text.lower().split("+")
    if axis == "recompute" and all(name in MODULES for name in names):
        return sum({MODULES[name] for name in names})
    for number, name in SPELLING[axis].items():
        if text.lower() == name:
            return number
    known = SPELLING[axis].values()
    raise unknown(axis, text, ["none", "selective", "full", *MODULES] if axis == "recompute" else known)


def _software(text: str) -> Software:
    """Return the switches in a word like ``with=tp-comm-overlap+moe-overlap``."""
    switches = Software.NONE
    for name in text.lower().split("+"):
        if name not in SOFTWARE:
            raise unknown("switch of a strategy", name, SOFTWARE)
        switches |= SOFTWARE[name]
    return switches


def parse_strategy(text: str) -> Strategy:
    """Parse the string form of a strategy; words may have any order and be separated by blanks or commas.

    >>> parse_strategy("tp4 pp2 dp8 mbs1 sp recompute=full").devices
    64

    Raises:
        RequestError: a word is unknown or duplicate.
    """
    values: dict[str, object] = {}
    spelled = re.sub(r"layers=([\d,]+)", lambda match: "layers=" + match[1].replace(",", ";"), text)
    spelled = _STAGES.sub(lambda match: "recompute=" + match[1].replace(",", ";"), spelled)
    spelled = _OFFLOAD.sub(lambda match: f"{match[1]}=" + match[2].replace(",", ";"), spelled)
    for word in re.split(r"[\s,]+", spelled.strip()):
        for name, value in _parse_word(word):
            if name in values:
                raise RequestError(f"{name} is given twice in strategy {text!r}")
            values[name] = value
    return _strategy(values)


def _strategy(values: dict[str, object]) -> Strategy:
    """Return the strategy of fields; also ``second dp``, ``second mbs``, ``stages`` and ``OFFLOAD_WORDS``."""
    seconds = {name: values.pop(f"second_{name}", None) for name in ("dp", "mbs")}
    stages = values.pop("stages", None)
    if isinstance(stages, str):
        if "recompute" in values:
            raise RequestError(f"recompute is given twice: recompute={stages}")
        entries = parse_recompute(stages, int(str(values.get("pp", 1))))
        common = common_recompute(entries)
        values |= {"stage_recompute": entries} if common is None else {"recompute": common}
    hosted = [values.pop(word, None) for word in OFFLOAD_WORDS]
    if any(text is not None for text in hosted):
        texts = [None if text is None else str(text) for text in hosted]
        values["stage_offload"] = parse_offload(texts, int(str(values.get("pp", 1))))
    if values.get("second_tp") == values.get("tp", 1):
        del values["second_tp"]
    strategy = Strategy(**values)  # type: ignore[arg-type]  # _parse_word returns field names with values of their types
    second = strategy.half(True)
    for name, value in seconds.items():
        if value is not None and value != getattr(second, name):
            raise RequestError(
                f"the second half has {name}={getattr(second, name)} (stages keep their devices and their share of a "
                f"microbatch), but the strategy says {name}={value}"
            )
    return strategy


def _parse_word(word: str) -> list[tuple[str, object]]:
    """Return the fields and values set by one word of a strategy."""
    for digits in re.findall(r"\d+", word):
        if len(digits) > MOST_DIGITS:
            raise RequestError(f"numbers of a strategy have at most {MOST_DIGITS} digits, but got {shown(word)}")
    if match := _WORD.fullmatch(word.lower()):
        if match[1] == "shard" and int(match[2]) == ALL_REPLICAS:
            raise RequestError(f"shard must be at least 1, or all, but got {word}")
        if match[1] in ("pp", "vpp") and int(match[2]) > MOST_STAGES:
            raise RequestError(f"{match[1]} is at most {MOST_STAGES:,}: no model has more layers, but got {word}")
        return [(match[1], int(match[2]))]
    if match := _HALVES.fullmatch(word.lower()):
        return [(match[1], int(match[2])), (f"second_{match[1]}", int(match[3]))]
    if word.lower() == "sp":
        return [("sp", True)]
    if word.lower() == "shard=all":
        return [("shard", ALL_REPLICAS)]
    name, separator, value = word.partition("=")
    enums = {"schedule": Schedule, "recompute": Recompute, "split": Split, "placement": Placement}
    if name == "recompute" and (match := re.fullmatch(r"full:([1-9]\d{0,6})", value)):
        return [("recompute", Recompute.FULL), ("recompute_layers", int(match[1]))]
    if name == "recompute" and (match := re.fullmatch(r"full/([1-9]\d{0,6})", value)):
        return [("recompute", Recompute.FULL), ("recompute_layers", in_groups(int(match[1])))]
    if name == "recompute" and (";" in value or ":" in value or "*" in value):
        return [("stages", value.replace(";", ","))]
    if separator and name in enums:
        return [(name, enums[name](parse_named(name, value)))]
    if separator and name.lower() in OFFLOAD_WORDS:
        return [(name.lower(), value.replace(";", ","))]
    if name == "with":
        return [("software", _software(value))]
    if name == "layers" and re.fullmatch(r"\d+(;\d+)*", value):
        return [("layers_per_stage", tuple(int(part) for part in value.split(";")))]
    raise RequestError(
        f"cannot read {word!r} in a strategy; write words like tp4 pp8 dp16 mbs1 vpp2 zero1 sp recompute=full"
    )
