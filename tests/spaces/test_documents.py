"""Documents that users write: what is read, what is refused, and where errors point."""

import json
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from pydantic import BaseModel, ConfigDict, Field, create_model

from forerun.spaces.documents import MAX_DEPTH, MAX_VALUES, parse_document, read_document, read_toml, validate
from forerun.spaces.documents.values import LARGEST, LARGEST_INT
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import harmful


class Link(BaseModel):
    model_config = ConfigDict(extra="forbid")
    rate: float = Field(gt=0)
    kind: str = "ring"


class Box(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    devices: int = Field(ge=1)
    links: list[Link] = []
    extra: Link | int | None = None


def refuses(text: str, *, source: str = "box.yaml") -> str:
    with pytest.raises(RequestError) as caught:
        parse_document(text, source=source)
    return str(caught.value)


def complains(text: str, *, source: str = "box.yaml") -> str:
    with pytest.raises(RequestError) as caught:
        validate(parse_document(text, source=source), Box)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("1e9", 1e9),
        ("1.5", 1.5),
        ("-3", -3),
        ("0x10", 16),
        ("0o10", 8),
        ("010", 10),
        ("12:30:45", "12:30:45"),
        ("2024-01-01", "2024-01-01"),
        ("'1'", "1"),
        ("400Gb/s", "400Gb/s"),
        ("[1, [a, {b: c}]]", [1, ["a", {"b": "c"}]]),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    assert parse_document(f"key: {text}", source="x.yaml").data == {"key": value}


def test_keys_are_texts() -> None:
    assert parse_document("1: a\ntrue: b\nnull: c", source="x.yaml").data == {"1": "a", "true": "b", "null": "c"}


texts = st.text(max_size=8).filter(lambda text: harmful(text) is None)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-LARGEST_INT, LARGEST_INT) | st.floats(-LARGEST, LARGEST) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


@given(plain)
@settings(max_examples=tries(60))
def test_json_reads_back_what_json_wrote(value: object) -> None:
    assert parse_document(json.dumps(value), source="x.json").data == value


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: .nan", "line 1, column 4: a number must be finite, but got '.nan'"),
        ("a: -.inf", "a number must be finite"),
        ("a: 1e400", "a number must be finite, but got '1e400'"),
        ("a: 1e101", "a number is at most 1e+100"),
        ("a: 9223372036854775808", "a whole number has at most 63 bits, but this one has 64"),
        ('a: "\\e[2J"', "a text has no control characters, but '\\x1b[2J' has U+001B"),
        ('"\\u202e": 1', "a key has no control characters"),
        ("", "empty"),
        ("  \n# only a comment\n", "empty"),
        ("a: !!python/object/apply:os.system [echo]", "line 1, column 4: tags are not accepted"),
        ("a: !Thing {b: 1}", "tags are not accepted; remove !Thing"),
        ("a: &x [1]\nb: *x", "line 2, column 4: aliases are not accepted"),
        ("a: 1\nb: 2\na: 3", "line 3, column 1: key 'a' is given twice (first on line 1)"),
        ("a: [1, 2", "[ of line 1 needs its ]"),
        ("a: 1\n b: 2", "line 2, column 3: this line is indented further than its neighbours"),
        ("a:\n  b: 1\n c: 2", "line 3, column 2: the indentation of this line fits no line above"),
        ("a: b: c", "column 5: a second ': ' in one line; put quotes around 'b: c'"),
        ("a\nb: 1", "the line above needs a key with ': '"),
        ("- 1\nb: 2", "entries of a list and keys of a mapping are mixed"),
        ("a:\n\t- 1", "line 2, column 1: a tab cannot indent"),
        ("a: @x", "a text that begins with @ needs quotes"),
        ("a: %x", "a text that begins with % needs quotes"),
        ('a: "\\q"', "unknown escape"),
        ('a: "x', '" of line 1 needs its "'),
        ("a: {b: [1}", "[ of line 1 needs its ]"),
        ("]", "nothing opens this ]"),
        ("a: 'it's", "this is not valid YAML; look for"),
        ("a: 1\n---\nb: 2", "one file is one document"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), f"at most {MAX_DEPTH} levels"),
        ("[" * 500_000, f"at most {MAX_DEPTH} levels"),
        ("a: " + "{a: " * 2000, f"at most {MAX_DEPTH} levels"),
        ("- " * 2000, f"at most {MAX_DEPTH} levels"),
        ("[" + "1," * (MAX_VALUES + 1) + "]", "values"),
        ("a: " + "9" * 5000, "digits"),
        ("? [a]\n: 1", "keys are texts"),
        ("a: \x00", "not YAML"),
    ],
)
def test_refuses_yaml(text: str, part: str) -> None:
    message = refuses(text)
    assert part in message
    assert message.startswith("box.yaml")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"a": NaN}', "a number must be finite, but got NaN"),
        ('{"a": 1e400}', "a number must be finite, but got 'inf'"),
        ('{"a": 1e101}', "a number is at most 1e+100"),
        ('{"a": 9223372036854775808}', "a whole number has at most 63 bits, but this one has 64"),
        ('{"a": "\\u001b[2J"}', "a text has no control characters, but '\\x1b[2J' has U+001B"),
        ('{"\\u202e": 1}', "a key has no control characters"),
        ("", "empty"),
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ('{"a": 1,\n "b" 2}', "line 2, column 6: a comma, a colon, a quote or a bracket is missing before '2}'"),
        ('{"a": 1,}', "remove the comma before the closing bracket"),
        ("[1, 2, ]", "remove the comma before the closing bracket"),
        ("{'a': 1}", "double quotes"),
        ('{"a": None}', "write null, not None"),
        ('{"a": foo}', "the text 'foo' needs quotes"),
        ('{"a": }', "a value is missing before '}'"),
        ("{a: 1}", "a key in double quotes is missing before 'a: 1}'"),
        ('{"a": 1} 2', "one file is one document"),
        ('{"a": "x', 'a text needs its closing "'),
        ('{"a": "x\ny"}', "a text has no line break, tab or control character"),
        ('{"a": "\\q"}', "unknown escape"),
        ('// what it is\n{"a": 1}', "JSON has no comments"),
        ('{"a": 1', "the text ends inside"),
        ("[" * 200 + "]" * 200, "levels"),
        ("[" * 100_000, "levels"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
    ],
)
def test_refuses_json(text: str, part: str) -> None:
    assert part in refuses(text, source="x.json")


def test_refuses_files_that_are_no_documents(tmp_path: Path) -> None:
    huge, binary, fifo = tmp_path / "huge.yaml", tmp_path / "binary.yaml", tmp_path / "fifo.yaml"
    with huge.open("wb") as file:
        file.truncate(400 << 20)  # sparse: takes no space, and reading it would take seconds
    binary.write_bytes(b"a: 1\nb: \xff\xfe")
    os.mkfifo(fifo)
    cases = {
        huge: "419,430,400 bytes",
        binary: "line 2: the file is not UTF-8 text (byte 0xff)",
        fifo: "not a regular file",
        tmp_path / "none.yaml": "no such file",
        tmp_path / "x.toml": ".yaml, .yml or .json",
        tmp_path / ("n" * 300 + ".yaml"): "cannot be read",
        Path("a\0b.yaml"): "cannot be read",
    }
    (tmp_path / "dir.yaml").mkdir()
    cases[tmp_path / "dir.yaml"] = "is a directory"
    for path, part in cases.items():
        with pytest.raises(RequestError) as caught:
            read_document(path)
        assert part in str(caught.value)


def test_reads_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "box.yml"
    path.write_text("name: a", encoding="utf-8-sig")
    assert read_document(path).data == {"name": "a"}
    assert read_document(path).source == str(path)


def test_max_bytes_is_the_largest_size_accepted(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    path.write_text("name: abc")
    assert read_document(path, max_bytes=9).data == {"name": "abc"}
    with pytest.raises(RequestError, match="at most 8"):
        read_document(path, max_bytes=8)


def test_valid_document_becomes_its_schema() -> None:
    box = validate(parse_document("name: a\ndevices: 8\nlinks: [{rate: 2}]", source="x.yaml"), Box)
    assert box == Box(name="a", devices=8, links=[Link(rate=2)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: a\ndevces: 8", "box.yaml, line 2, devces: unknown key; did you mean devices?"),
        ("name: a", "box.yaml, devices: this key is required"),
        ("- 1", "box.yaml: this must be a mapping of keys to values, but got a list"),
        ("name: a\ndevices: eight", "box.yaml, line 2, devices: this must be a whole number"),
        ("name: a\ndevices: 0", "this must be at least 1, but got 0"),
        ("name: a\ndevices: 8\nlinks:\n  - rate: 1\n  - rte: 1", "box.yaml, line 5, links.1.rte: unknown key; did you"),
        ("name: a\ndevices: 8\nextra: {rte: 1}", "box.yaml, line 3, extra.rte: unknown key; did you mean rate?"),
        ("name: a\ndevices: 8\nzzz: 1", "unknown key; known: devices, extra, links, name"),
    ],
)
def test_errors_point_at_the_line_and_the_nearest_key(text: str, expected: str) -> None:
    assert complains(text).splitlines()[0].startswith(expected) or expected in complains(text).splitlines()[0]


def test_small_and_large_bounds_are_written_short() -> None:
    class Bounded(BaseModel):
        low: float = Field(ge=1e-12, default=1.0)
        high: float = Field(le=1e18, default=1.0)

    for key, value, bound in (("low", "0", "at least 1e-12"), ("high", "2e18", "at most 1e+18")):
        with pytest.raises(RequestError, match=re.escape(f"{bound}, but got {value[0]}")):
            validate(parse_document(f"{key}: {value}", source="x.yaml"), Bounded)


def test_lines_are_found_in_json_too_even_with_tabs() -> None:
    text = '{\n\t"name": "a",\n\t"devices": 8,\n\t"links": [\n\t\t{"rate": -1}\n\t]\n}'
    assert complains(text, source="box.json").startswith("box.json, line 5, links.0.rate: ")


def test_at_most_five_problems_are_shown() -> None:
    keys = "\n".join(f"wrong{i}: 1" for i in range(9))
    lines = complains(f"name: a\ndevices: 1\n{keys}").splitlines()
    assert len(lines) == 6
    assert lines[-1] == "and 4 more"


def test_importing_the_reader_does_not_import_pydantic() -> None:
    code = "import sys, forerun.spaces.documents; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a = 1\nb = ", "box.toml, line 2: 'b =' is not valid TOML"),
        ("a = 1\na = 2", "line 2: 'a = 2' is not valid TOML; texts need quotes, and a key is given once"),
        ("a = 'x", "line 1"),
        ("a = " + "[" * 5000, "levels|line 1"),
    ],
)
def test_refuses_toml(text: str, part: str) -> None:
    with pytest.raises(RequestError, match=part):
        read_toml(text, "box.toml")


@pytest.mark.parametrize(
    ("value", "kind", "sentence"),
    [
        ("x", bool, "this must be true or false, but got 'x'"),
        (2, bool, "this must be true or false, but got 2"),
        ("x", int, "this must be a whole number, but got 'x'"),
        (1.5, int, "this must be a whole number, but got 1.5"),
        ("x", float, "this must be a number, but got 'x'"),
        (1, str, "this must be a text, but got 1"),
        (None, str, "this must be a text, but got nothing"),
        ("b", Literal["a", "c"], "this must be 'a' or 'c', but got 'b'"),
        (1, Annotated[int, Field(gt=1)], "this must be above 1, but got 1"),
        (1, Annotated[int, Field(lt=1)], "this must be below 1, but got 1"),
        ("a", Annotated[str, Field(min_length=2)], "this must have at least 2 characters, but got 'a'"),
        ("abc", Annotated[str, Field(max_length=2)], "this must have at most 2 characters, but got 'abc'"),
        ("abc", Annotated[str, Field(pattern="^a$")], "this must match ^a$, but got 'abc'"),
        ([], Annotated[list[int], Field(min_length=1)], "this list is too short; the least is 1, but got a list"),
        ([1, 2], Annotated[list[int], Field(max_length=1)], "this list is too long; the most is 1, but got a list"),
        ("x", Annotated[int, Field(strict=True)] | Link, "this must be a whole number, but got 'x'"),
        ("x", date, "this value is not accepted here, but got 'x'"),
    ],
)
def test_schemas_complain_in_our_own_words(value: object, kind: Any, sentence: str) -> None:
    schema = create_model("Schema", key=(kind, ...))
    with pytest.raises(RequestError) as caught:
        validate(parse_document(json.dumps({"key": value}), source="x.json"), schema)
    assert sentence in str(caught.value).splitlines()[0]
