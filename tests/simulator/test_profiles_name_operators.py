"""What a profile names exists: a misspelt operator would otherwise be costed as fused without a word."""

import pytest

from forerun.search.measured.validate.vocabulary import table
from forerun.simulator.costs import ATTENTION_KERNELS, stream_operators
from forerun.spaces.frameworks import framework_names, load_framework


@pytest.mark.parametrize("name", framework_names())
def test_of_the_catalogue(name: str) -> None:
    profile = load_framework(name)

    assert set(profile.eager) <= set(stream_operators())
    assert profile.attention in ATTENTION_KERNELS


def test_of_published_runs() -> None:
    facts = [entry.data.get("facts", {}) for entry in table("frameworks")]

    assert {operator for fact in facts for operator in fact.get("eager", ())} <= set(stream_operators())
    assert {fact["attention"] for fact in facts if "attention" in fact} <= set(ATTENTION_KERNELS)
