"""The glossary is complete and has every term once; its retired words stay out of code, messages and pages."""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
PLACES = ("search", "simulator", "spaces", "docs")
RETIRED = "Words that are not used"


def tables() -> dict[str, list[list[str]]]:
    """Cells of every row of the glossary, by heading."""
    sections: dict[str, list[list[str]]] = {}
    for section in GLOSSARY.read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", text, re.M)]
        sections[title] = rows[2:]
    return sections


def retired() -> dict[str, str]:
    """Pattern of every retired word -> what to write."""
    patterns = {}
    for words, instead in tables()[RETIRED]:
        for word in words.split(", "):
            code = word.strip("`")
            text = re.escape(code)
            start, end = (r"\b" * code[i].isalnum() for i in (0, -1)) if code != word else ("(?<![a-z])", "(?![a-z])")
            patterns[f"{start}{text}{end}"] = instead
    return patterns


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
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", code())] == []


def test_retired_words_stay_out() -> None:
    paths = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.suffix in (".py", ".md", ".yaml")]
    paths += [ROOT / name for name in ("README.md", "CONTRIBUTING.md")]
    assert len(paths) > 500
    patterns = {re.compile(pattern, re.IGNORECASE): instead for pattern, instead in retired().items()}
    assert len(patterns) > 30
    one = re.compile("|".join(pattern.pattern for pattern in patterns), re.IGNORECASE)
    places = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if path == GLOSSARY or not one.search(text):
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            for pattern, instead in patterns.items():
                if pattern.search(line):
                    places.append(f"{path.relative_to(ROOT)}:{number}: write {instead!r}: {line.strip()}")
    assert not places, "\n".join(places)
