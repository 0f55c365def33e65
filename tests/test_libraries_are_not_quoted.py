"""What a library says in an error differs from version to version: no test waits for its words."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
SENTENCES = (
    "arguments are required",
    "could not find expected",
    "expected one argument",
    "Expecting property name",
    "Expecting value",
    "Extra inputs are",
    "Field required",
    "Input should",
    "input should",
    "invalid choice",
    "invalid literal for",
    "mapping values are not",
    "not allowed with argument",
    "unrecognized arguments",
    "while parsing a",
    "while scanning",
)
"""Of pydantic, PyYAML, argparse, json and Python."""


def test_no_sentence_of_a_library_is_written_down() -> None:
    quoted = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for folder in ("docs", "public", "search", "simulator", "spaces", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if path != Path(__file__)
        for sentence in SENTENCES
        if sentence in path.read_text(encoding="utf-8")
    ]
    assert quoted == [], "check for the key, the value and our own sentence"
