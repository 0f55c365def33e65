"""An answer takes the flags that it looks at, and refuses every other one by name."""

import pytest

from forerun.search.cli import answers, main
from forerun.search.cli.parser import Parser
from forerun.search.cli.verbs import limits, search, simulate

GRAPH = "resnet50 --cluster abci-v100 --global-batch 64/gpu".split()


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["search", *GRAPH, "--gpus", "4", "--measure-for", "accuracy"], "--measure-for"),
        (["search", *GRAPH, "--gpus", "4", "--seed", "3"], "--seed"),
        (["search", *GRAPH, "--gpus", "4", "--with", "dispatcher=deepep"], "--with"),
        (["simulate", *GRAPH, "--strategy", "data4", "--jitter", "0.1"], "--jitter"),
        (["limits", *GRAPH, "--gpus", "1..8", "--tokens", "1T"], "--tokens"),
    ],
)
def test_a_flag_that_is_not_looked_at_is_refused(
    words: list[str], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert f"{flag} is for transformers, and resnet50 is an operator graph" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "takes"),
    [
        (search, answers.SEARCH_OF_GRAPH),
        (search, answers.SEARCH_ON_GROUPS),
        (simulate, answers.SIMULATE_OF_GRAPH),
        (limits, answers.LIMITS_OF_GRAPH),
    ],
)
def test_what_an_answer_takes_are_flags_of_its_verb(verb: object, takes: tuple[str, ...]) -> None:
    parser = Parser(prog="forerun")
    verb.add_arguments(parser)  # type: ignore[attr-defined]

    assert set(takes) <= {action.dest for action in parser._actions}
