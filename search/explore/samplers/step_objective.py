"""Predicted steps as an objective of Optuna, for any sampler of a study."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.search.board.rows import GIB, rows_from
from forerun.search.explore.samplers.contract import Evaluation
from forerun.search.explore.samplers.driver import evaluate
from forerun.search.files.studies import LAWS, MEMORY, predicted_facts, record
from forerun.spaces.strategies import Context, Strategy
from forerun.spaces.strategies.axes import SPELLING
from forerun.spaces.strategies.staged_space import StagedSpace
from forerun.spaces.strategies.table import CUSTOM_SPLIT

if TYPE_CHECKING:
    from optuna.trial import Trial


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


class StepObjective:
    """Objective whose value is the predicted step in seconds, with memory and laws as constraints.

    Parameters
    ----------
    space
        Strategies whose stages may differ.
    """

    def __init__(self, space: StagedSpace) -> None:
        self.space = space
        self._known: dict[Strategy, Evaluation | None] = {}

    def __call__(self, trial: "Trial") -> float:
        """Suggest all parameters of a strategy, and predict its step.

        Raises
        ------
        TrialPruned
            The parameters give no strategy, or an illegal one.
        """
        from optuna import TrialPruned

        strategy = self.suggest(trial)
        evaluation = None if strategy is None else self.of(strategy)
        if strategy is None or evaluation is None:
            record(trial, {}, {LAWS: 1.0})
            raise TrialPruned
        context = self.space.context
        record(trial, facts_of(context, strategy, evaluation), {MEMORY: excess_gib(context, evaluation), LAWS: 0.0})
        return evaluation.value

    def suggest(self, trial: "Trial") -> Strategy | None:
        """Return the strategy of a trial; None if its parameters give none."""

        def choose(name: str, choices: Sequence[int]) -> int:
            if isinstance(choices, range):
                return trial.suggest_int(name, choices[0], choices[-1])
            texts: list[Any] = words_of(name, choices_of(self.space, name, choices))
            return answer_of(name, choices, trial.suggest_categorical(name, texts))

        return self.space.build(choose)

    def of(self, strategy: Strategy) -> Evaluation | None:
        """Return the prediction of a strategy; None if it breaks a law."""
        if strategy not in self._known:
            legal = bool(self.space.legal([strategy])[0])
            self._known[strategy] = evaluate(self.space, [strategy])[0] if legal else None
        return self._known[strategy]


def facts_of(context: Context, strategy: Strategy, evaluation: Evaluation) -> dict[str, Any]:
    """Return a prediction as user attributes of a trial."""
    (row,) = rows_from(context, [strategy], evaluation.scores.take(np.array([evaluation.row])))
    return predicted_facts(
        strategy=row.name,
        gpus=row.gpus,
        step_s=row.step_time_s,
        tokens=context.workload.global_batch * context.workload.seq_len,
        mfu=row.mfu,
        peak_gib=row.peak_memory_gib,
        oom_risk=row.oom_risk,
    )


def excess_gib(context: Context, evaluation: Evaluation) -> float:
    """Return the GiB by which a strategy exceeds the memory; at or below zero it fits."""
    return evaluation.excess * context.memory_limit_bytes / GIB
