"""Differences between two snapshots, by kind: what was added, dropped, changed, and what moved by rounding only."""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROUNDING = 1e-9
"""Relative difference up to which a number has moved by the order of additions only."""

KINDS = ("added", "rounding", "changed", "dropped")
HARMLESS = ("added",)
SHOWN = 160
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place of one case that differs: ``kind`` is one of `KINDS`, ``old`` and ``new`` the values found there."""

    kind: str
    case: str
    place: str
    old: Any = None
    new: Any = None


def compare(before: Path, after: Path) -> list[Difference]:
    """Return all differences between the snapshots in two folders; cases of only one of them are among these."""
    old, new = ({path.stem: path for path in folder.glob("*.json")} for folder in (before, after))
    if not old or not new:
        raise SystemExit(f"no snapshot in {after if old else before}")
    found = [Difference(kind="dropped", case=name, place="(case)") for name in sorted(old.keys() - new.keys())]
    found += [Difference(kind="added", case=name, place="(case)") for name in sorted(new.keys() - old.keys())]
    for name in sorted(old.keys() & new.keys()):
        pair = (json.loads(path.read_text()) for path in (old[name], new[name]))
        found += _differences(name, "", *pair)
    return found


def _differences(case: str, place: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            where = f"{place}.{key}" if place else key
            if key not in new:
                yield Difference(kind="dropped", case=case, place=where, old=old[key])
            elif key not in old:
                yield Difference(kind="added", case=case, place=where, new=new[key])
            else:
                yield from _differences(case, where, old[key], new[key])
    elif _is_text(old) and _is_text(new):
        yield from _lines(case, place, old, new)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield Difference(kind="changed", case=case, place=f"{place}.length", old=len(old), new=len(new))
        for index, pair in enumerate(zip(old, new, strict=False)):
            yield from _differences(case, f"{place}[{index}]", *pair)
    elif old != new or type(old) is not type(new):
        yield Difference(kind=_kind(old, new), case=case, place=place, old=old, new=new)


def _is_text(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(line, str) for line in value)


def _lines(case: str, place: str, old: list[str], new: list[str]) -> Iterator[Difference]:
    """Compare lists of lines (notes, messages, files) as sets in order: a line more is no change of those after it."""
    gone = [line for line in old if line not in set(new)]
    come = [line for line in new if line not in set(old)]
    for before, after in zip(gone, come, strict=False):
        yield Difference(kind="changed", case=case, place=f"{place}[line]", old=before, new=after)
    for line in gone[len(come) :]:
        yield Difference(kind="dropped", case=case, place=f"{place}[line]", old=line)
    for line in come[len(gone) :]:
        yield Difference(kind="added", case=case, place=f"{place}[line]", new=line)
    if not gone and not come and old != new:
        yield Difference(kind="changed", case=case, place=f"{place}[order]", old=old, new=new)


def _kind(old: Any, new: Any) -> str:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (old, new))
    return "rounding" if numbers and math.isclose(old, new, rel_tol=ROUNDING) else "changed"


def report(found: list[Difference], *, every: bool) -> int:
    """Print the differences, one line per kind of place unless every; return 1 if anything but additions is there."""
    groups: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    for difference in found:
        place = difference.place if every else re.sub(r"\[\d+\]", "[]", difference.place)
        groups[difference.kind, f"{difference.case} {place}" if every else place].append(difference)
    for kind in KINDS:
        for place, same in sorted((place, same) for (of, place), same in groups.items() if of == kind):
            first = same[0]
            values = " -> ".join(_short(value) for value in (first.old, first.new) if value is not None)
            cases = sorted({difference.case for difference in same})
            places = f"{len(same)} places of {', '.join(cases[:4])}{' ...' * (len(cases) > 4)}"
            print(f"{kind:8} {place}: {values}  ({places})")
    count = {kind: sum(difference.kind == kind for difference in found) for kind in KINDS}
    print(", ".join(f"{number} {kind}" for kind, number in count.items()))
    return int(any(number for kind, number in count.items() if kind not in HARMLESS))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
