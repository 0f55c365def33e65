"""Optuna's samplers behind the contract: ask and tell in batches, memory as Optuna's own constraint.

One trial is one strategy; its parameters are the questions that were active. Illegal strategies are told as trials
that break a constraint, so that the sampler learns to avoid them. Works with Optuna 4 and 5.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from forerun.search.samplers.contract import Evaluation, Sampler
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Strategy
from forerun.spaces.strategies.staged_space import StagedSpace

STUDY = "forerun"
MEMORY, LAWS = "memory", "laws"
"""Names of the constraints of a trial; feasible at or below zero."""
WORST = 1e30
"""Value of what cannot be evaluated: it is also infeasible, so that only its finiteness matters."""
NEEDS = {"gp": "torch", "cmaes": "cmaes"}
"""Packages that Optuna's samplers of these names need besides Optuna (optuna.org, samplers)."""


class OptunaSampler(Sampler):
    """One of Optuna's samplers, by name: tpe, nsga2, gp, cmaes.

    ``storage`` keeps the trials and continues those it has: a file (journal) or an RDB URL; None: in memory.

    Raises:
        RequestError: the package that a sampler needs is missing, or the storage refuses.
    """

    def __init__(self, name: str, seed: int = 0, storage: str | None = None) -> None:
        import optuna

        self.name = name
        self._optuna: Any = optuna
        self._storage = None if storage is None else _storage(optuna, storage)
        self._sampler = _sampler(optuna, name, seed)
        self._asked: list[Any] = []

    def begin(self, space: StagedSpace, starts: Sequence[Strategy], objectives: int) -> None:
        """Open the study and enqueue the starts."""
        optuna = self._optuna
        self._space, self._objectives = space, objectives
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            self._study = optuna.create_study(
                directions=["minimize"] * objectives,
                sampler=self._sampler,
                storage=self._storage,
                study_name=STUDY if self._storage is not None else None,
                load_if_exists=self._storage is not None,
            )
            for strategy in starts:
                self._study.enqueue_trial(space.answers(strategy), skip_if_exists=True)
        except Exception as error:
            raise RequestError(f"the storage refuses the study: {type(error).__name__}: {error}") from None
        finally:
            optuna.logging.set_verbosity(before)

    def ask(self, count: int) -> list[Strategy | None]:
        """Ask for that many trials."""
        self._asked, strategies = [], []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of experimental features, once per trial
            for _ in range(count):
                trial = self._study.ask()
                self._asked.append(trial)
                strategies.append(self._space.build(_answers(trial)))
        return strategies

    def tell(self, evaluations: Sequence[Evaluation | None]) -> None:
        """Tell values and constraints of the trials."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for trial, evaluation in zip(self._asked, evaluations, strict=True):
                broken = {MEMORY: 0.0, LAWS: 1.0} if evaluation is None else {MEMORY: evaluation.excess, LAWS: 0.0}
                for name, value in broken.items():
                    _constrain(trial, name, value)
                values = (WORST,) * self._objectives if evaluation is None else evaluation.values
                self._study.tell(trial, list(values))
        self._asked = []


def _answers(trial: Any) -> Callable[[str, Sequence[int]], int]:
    """Answer questions by the trial: shifts of boundaries are numbers, everything else is a choice."""

    def choose(name: str, choices: Sequence[int]) -> int:
        if isinstance(choices, range):
            return int(trial.suggest_int(name, choices[0], choices[-1]))
        return int(trial.suggest_categorical(name, list(choices)))

    return choose


def _constrain(trial: Any, name: str, value: float) -> None:
    if hasattr(trial, "set_constraint"):  # Optuna 5; 4 reads the attribute by ``constraints_func``
        trial.set_constraint(name, value)
    else:
        trial.set_user_attr(name, value)


def _sampler(optuna: Any, name: str, seed: int) -> Any:
    samplers = optuna.samplers
    options: dict[str, Any] = {"seed": seed}
    if not hasattr(optuna.trial.Trial, "set_constraint") and name in ("tpe", "nsga2", "gp"):
        options["constraints_func"] = lambda trial: [trial.user_attrs.get(n, 1.0) for n in (MEMORY, LAWS)]
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        raise RequestError(
            f"sampler {name} needs the package {NEEDS[name]}, which is not installed; `pip install {NEEDS[name]}`, "
            "or use local, tpe, nsga2 or random"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of experimental options
        if name == "tpe":
            return samplers.TPESampler(multivariate=True, constant_liar=True, **options)
        if name == "nsga2":
            return samplers.NSGAIISampler(**options)
        return {"gp": samplers.GPSampler, "cmaes": samplers.CmaEsSampler}[name](**options)


def _storage(optuna: Any, text: str) -> Any:
    """Return the storage that a text names.

    Raises:
        RequestError: it cannot be opened.
    """
    try:
        if "://" in text:
            return optuna.storages.RDBStorage(text)
        folder = os.path.dirname(os.path.abspath(text))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"no such folder: {folder}")
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(text))
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise RequestError(
            f"the storage {text} cannot be opened: {type(error).__name__}: {first}; name a file, or a URL like "
            "sqlite:///studies.db"
        ) from None
