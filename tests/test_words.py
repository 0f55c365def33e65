"""The glossary is complete and has every term once; its retired words stay out of code, messages and pages."""

import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from sources import ROOT, product

GLOSSARY = ROOT / "docs" / "glossary.md"
PLACES = ("public", "search", "simulator", "spaces", "docs")
RETIRED = "Words that are not used"


def tables() -> dict[str, list[list[str]]]:
    """Cells of every row of the glossary, by heading."""
    sections: dict[str, list[list[str]]] = {}
    for section in GLOSSARY.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", text, re.M)]
        sections[title] = rows[2:]
    return sections


@dataclass(frozen=True)
class Retired:
    """A word that is not used: its plain text in small letters, the pattern that finds it, and what to write."""

    text: str
    pattern: re.Pattern[str]
    instead: str


def retired() -> list[Retired]:
    """Every retired word of the glossary."""
    found = []
    for words, instead in tables()[RETIRED]:
        for word in words.split(", "):
            code = word.strip("`")
            start, end = (r"\b" * code[i].isalnum() for i in (0, -1)) if code != word else ("(?<![a-z])", "(?![a-z])")
            pattern = re.compile(f"{start}{re.escape(code)}{end}", re.IGNORECASE)
            found.append(Retired(code.lower(), pattern, instead))
    return found


@cache
def code() -> str:
    """The text of all modules."""
    return "\n".join(path.read_text(encoding="utf-8") for place in PLACES for path in (ROOT / place).rglob("*.py"))


def test_every_term_stands_once() -> None:
    terms = [cells[0] for title, rows in tables().items() if title != RETIRED for cells in rows]
    assert len(terms) > 60
    single = [term for cell in terms for term in cell.split(", ")]
    assert sorted(single) == sorted(set(single))


def test_names_of_the_glossary_are_those_of_the_code() -> None:
    rows = [cells for title, rows in tables().items() if title != RETIRED for cells in rows]
    names = {name for cells in rows for cell in cells[1:] for name in re.findall(r"`(\w+)`", cell)}
    assert sorted(names - set(re.findall(r"\w+", code()))) == []


def test_retired_words_stay_out() -> None:
    paths = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.suffix in (".py", ".md", ".yaml")]
    paths += [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    assert len(paths) > 500
    words = retired()
    assert len(words) > 30
    places = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        small = text.lower()
        present = [word for word in words if word.text in small]  # a hundred times as fast as a pattern
        if path == GLOSSARY or not present:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            for word in present:
                if word.pattern.search(line):
                    places.append(f"{path.relative_to(ROOT)}:{number}: write {word.instead!r}: {line.strip()}")
    assert not places, "\n".join(places)


def test_no_docstring_says_a_paragraph_twice() -> None:
    repeated = []
    for module in product():
        for name, docstring in module.docstrings:
            words = [set(re.findall(r"\w+", one)) for one in docstring.split("\n\n")]
            for first, second in pairwise(words):
                if min(len(first), len(second)) > 4 and len(first & second) > 0.52 * max(len(first), len(second)):
                    repeated.append(f"{module.path.relative_to(ROOT)}: {name}")
    assert repeated == []
