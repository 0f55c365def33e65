"""Parameters of a strategy whose stages may differ: its choices, in the terms of the glossary."""

import re
from collections.abc import Mapping, Sequence

from forerun.spaces.strategies import Strategy
from forerun.spaces.strategies.axes import SPELLING
from forerun.spaces.strategies.staged_space import StagedSpace
from forerun.spaces.strategies.table import CUSTOM_SPLIT

Word = str | int
OWN = {"split": "own", "recompute": "some-layers"}
"""Words for explicit layers per stage, and for a stage that recomputes some of its layers."""
_STAGE = re.compile(r"_\d+$")


def words_of(name: str, choices: Sequence[int]) -> list[Word]:
    """Return the words for the choices of a question.

    >>> words_of("recompute_0", [0, 2]), words_of("sp", [0, 1]), words_of("tp", [1, 2])
    (['none', 'full'], ['off', 'on'], [1, 2])
    """
    axis = _STAGE.sub("", name)
    if axis in ("sp", "recompute_per_stage"):
        return ["on" if one else "off" for one in choices]
    if axis not in SPELLING:
        return [int(one) for one in choices]
    return [OWN[axis] if one == CUSTOM_SPLIT and axis in OWN else SPELLING[axis][int(one)] for one in choices]


def choices_of(space: StagedSpace, name: str, choices: Sequence[int]) -> Sequence[int]:
    """Return all possible choices of a question; choices of switches depend on earlier answers."""
    return space.flat.choices["switches"] if name == "switches" else choices


def parameters_of(space: StagedSpace, strategy: Strategy) -> dict[str, tuple[Word, Sequence[Word] | range]]:
    """Return the parameters of a strategy, each with all its choices (a range of numbers, or words)."""
    answers, parameters = space.answers(strategy), dict[str, tuple[Word, Sequence[Word] | range]]()

    def choose(name: str, choices: Sequence[int]) -> int:
        answer = answers[name]
        if isinstance(choices, range):
            parameters[name] = answer, choices
        else:
            parameters[name] = words_of(name, [answer])[0], words_of(name, choices_of(space, name, choices))
        return answer

    space.build(choose)
    return parameters


def strategy_of(space: StagedSpace, parameters: Mapping[str, Word]) -> Strategy | None:
    """Return the strategy that parameters build; None if they are invalid or incomplete."""

    def choose(name: str, choices: Sequence[int]) -> int:
        if isinstance(choices, range):
            return int(parameters[name])
        return answer_of(name, choices, parameters[name])

    try:
        return space.build(choose)
    except KeyError:
        return None


def answer_of(name: str, choices: Sequence[int], word: Word) -> int:
    """Return the choice of a word; the first choice if earlier answers exclude it."""
    return dict(zip(words_of(name, choices), choices, strict=True)).get(word, choices[0])
