"""Formulas in the tables of Hugging Face families: values, lazy reading, refused syntax, and that all of them parse."""

import ast
import dataclasses
from collections.abc import Iterator

import pytest

from forerun.spaces.models.huggingface.families.encoder_decoders import encoder_decoders
from forerun.spaces.models.huggingface.families.multimodal import multimodal
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.formulas import Formula
from forerun.spaces.models.huggingface.tables import decoders, token_encoders, towers

CALLS = set("linear int size optional number flag text length entries total given".split())


def fields(**values: object) -> Fields:
    return Fields(dict(values), source="config.json", defaults={})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * hidden_size + 1", 129),
        ("linear(hidden_size, 3)", 195),
        ("size(inner, 4 * hidden_size)", 256),
        ("optional(rank) or 7", 7),
        ("narrow = hidden_size // 2\n-narrow // 3", -11),
        ("absent if flag(wide) else 5", 5),
        ("length(levels) + total(levels)", 11),
        ("int(hidden_size / number(ratio, 0.5))", 128),
        ("index % 2 == 1", True),
    ],
)
def test_a_formula_reads_only_the_fields_that_it_needs(text: str, value: int) -> None:
    value_read = Formula(text)(fields(hidden_size=64, levels=[1, 3, 4]), index=3)

    assert value_read == value


@pytest.mark.parametrize("text", ["[hidden_size]", "1 < 2 < 3", "lambda: 1"])
def test_other_syntax_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a formula cannot have"):
        Formula(text)(fields(hidden_size=64))


def formulas(family: object) -> Iterator[Formula]:
    for one in dataclasses.fields(family):  # type: ignore[arg-type]  # families are dataclasses
        value = getattr(family, one.name)
        if isinstance(value, Formula):
            yield value
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            yield from formulas(value)


def test_formulas_of_all_tables_are_expressions_of_known_functions() -> None:
    tables = (decoders(), token_encoders(), towers(), multimodal(), encoder_decoders())
    texts = {one.text for table in tables for family in table.values() for one in formulas(family)}

    assert len(texts) > 80
    for text in texts:
        tree = ast.parse(text)
        assert isinstance(tree.body[-1], ast.Expr), text
        assert {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call)} <= CALLS, text  # type: ignore[attr-defined]
