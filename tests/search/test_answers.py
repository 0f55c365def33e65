"""An answer takes the flags that it looks at, and refuses every other one by name."""

import pytest

from forerun.search.cli.flags.declaration import Answer, flags_of, json_schema
from forerun.search.cli.flags.parsing import Words, refuse_unserved
from forerun.search.cli.registry import VERBS, Verb, read_declaration

GRAPH = "resnet50 --cluster abci-v100 --global-batch 64/gpu".split()


@pytest.mark.parametrize(
    "words", [["search", *GRAPH, "--gpus", "4", "--top", "1"], ["limits", *GRAPH, "--gpus", "1..4"]]
)
def test_flags_of_transformers_alone_are_no_part_of_other_answers(words: list[str]) -> None:
    parsed = Words("forerun", flags_of(read_declaration(words[0]).flags), words[1:]).parse(None)

    refuse_unserved(parsed, Answer.GRAPH, "is refused")


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_every_flag_counts_for_an_answer_and_excludes_flags_of_its_verb(verb: Verb) -> None:
    flags = list(flags_of(verb.declaration.flags))
    names = [spelling for flag in flags for spelling in flag.spellings]

    assert len(set(names)) == len(names) and len({flag.dest for flag in flags}) == len(flags)
    assert all(flag.serves and (not flag.excludes or flag.excludes in names) for flag in flags)
    assert json_schema(flags)["properties"].keys() >= {flag.property_name for flag in flags}


def test_there_are_at_most_a_hundred_and_thirty_flags() -> None:
    flags = (flag for verb in VERBS for flag in flags_of(verb.declaration.flags))

    assert len({spelling for flag in flags for spelling in flag.spellings}) <= 130
