"""Optuna's TPE behind the contract: ask and tell in batches, memory as Optuna's own constraint.

One trial is one strategy; its parameters are the questions that were active. Illegal strategies are told as trials
that break a constraint, so that the sampler learns to avoid them. Works with Optuna 4 and 5.
"""

import hashlib
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any
from urllib.parse import unquote

from forerun.search.explore.samplers.contract import Evaluation, Sampler, StorageFailedError
from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import without_secrets
from forerun.spaces.strategies import Strategy, parse_strategy
from forerun.spaces.strategies.staged_space import StagedSpace

STUDY = "forerun"
"""Studies are called this and a hash of what they explore: one storage keeps those of many requests apart."""
EARLIER = 24
"""Strategies of a continued study that are looked at again, so that what it found best is in the result."""
STRATEGY, BROKEN = "strategy", "broken"
"""Attributes of stored trials: the strategy as text, and whether it breaks a law or exceeds the memory."""
MEMORY, LAWS = "memory", "laws"
"""Names of the constraints of a trial; feasible at or below zero."""
WORST = 1e30
"""Value of what cannot be evaluated: it is also infeasible, so that only its finiteness matters."""


class OptunaSampler(Sampler):
    """Optuna's tree-structured Parzen estimator.

    ``storage`` keeps the trials and continues those it has of the same space and objectives: a file (journal) or an RDB
    URL; None: in memory.

    Raises:
        RequestError: the storage refuses, at any time.
    """

    def __init__(self, seed: int = 0, storage: str | None = None) -> None:
        import optuna

        self.name = "tpe"
        self._optuna: Any = optuna
        self._storage = None if storage is None else _storage(optuna, storage)
        self._named = storage or ""
        self._sampler = _sampler(optuna, seed)
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
                study_name=study_name(space, objectives) if self._storage is not None else None,
                load_if_exists=self._storage is not None,
            )
            self._check_trials()
            for strategy in starts:
                self._study.enqueue_trial(self._parameters(strategy), skip_if_exists=True)
        except RequestError:
            raise
        except Exception as error:
            raise RequestError(f"the storage refuses the study: {_reason(error, self._named)}") from None
        finally:
            optuna.logging.set_verbosity(before)

    def _check_trials(self) -> None:
        """Look at what a storage has, before a sampler compares it.

        Raises:
            RequestError: the values of a trial are not as many numbers as there are objectives.
        """
        for trial in self._study.get_trials(deepcopy=False):
            values = trial.values
            if values is None:
                continue
            numbers = [one for one in values if isinstance(one, int | float) and isfinite(one)]
            if not len(numbers) == len(values) == self._objectives:
                raise RequestError(
                    f"trial {trial.number} of the storage has the values {values!r:.60}, but a trial has a finite "
                    f"number for each objective ({self._objectives} here); is it torn? name another storage"
                )

    def earlier(self) -> Sequence[Strategy]:
        """Return the best feasible strategies of the study so far, by the first objective."""
        if self._storage is None:
            return ()
        with self._kept():
            trials = self._study.get_trials(deepcopy=False)
        told = [trial for trial in trials if trial.values and trial.user_attrs]  # a foreign journal may lack them
        done = [t for t in told if t.user_attrs.get(STRATEGY) and not t.user_attrs.get(BROKEN, True)]
        done.sort(key=lambda trial: (trial.values[0], trial.number))
        found = dict.fromkeys(parse_strategy(str(trial.user_attrs[STRATEGY])) for trial in done)
        return list(found)[:EARLIER]

    def ask(self, count: int) -> list[Strategy | None]:
        """Ask for that many trials."""
        self._asked, strategies = [], []
        with self._kept():
            for _ in range(count):
                trial = self._study.ask()
                self._asked.append(trial)
                strategy = self._space.build(_answers(trial))
                strategies.append(strategy)
                if self._storage is not None:
                    trial.set_user_attr(STRATEGY, "" if strategy is None else str(strategy))
        return strategies

    def tell(self, evaluations: Sequence[Evaluation | None]) -> None:
        """Tell values and constraints of the trials."""
        with self._kept():
            for trial, evaluation in zip(self._asked, evaluations, strict=True):
                broken = {MEMORY: 0.0, LAWS: 1.0} if evaluation is None else {MEMORY: evaluation.excess, LAWS: 0.0}
                for name, value in broken.items():
                    _constrain(trial, name, value)
                values = (WORST,) * self._objectives if evaluation is None else evaluation.values
                if self._storage is not None:
                    trial.set_user_attr(BROKEN, evaluation is None or not evaluation.fits)
                self._study.tell(trial, list(values))
        self._asked = []

    def _parameters(self, strategy: Strategy) -> dict[str, int]:
        """Return the parameters of the trial that builds a strategy."""
        answers, given = self._space.answers(strategy), dict[str, int]()

        def choose(name: str, _: Sequence[int]) -> int:
            given[name] = answers[name]
            return answers[name]

        self._space.build(choose)
        return given

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep warnings of experimental features quiet, and say in clear words when the storage fails.

        Raises:
            StorageFailedError: the storage fails.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
            except (OSError, self._optuna.exceptions.StorageInternalError) as error:
                raise StorageFailedError(f"the storage of the study fails: {_reason(error, self._named)}") from None


def study_name(space: StagedSpace, objectives: int) -> str:
    """Return the name of the study of a space: trials of another one say nothing about it."""
    context = space.context
    free = (space.reach, space.recompute, space.halves, *((space.offload,) if space.offload else ()))
    said = repr((sorted(space.flat.choices.items()), *free, objectives))
    facts = repr((context.model, context.cluster, context.workload, context.framework))
    return f"{STUDY}-{context.model.name}-{hashlib.sha256((said + facts).encode()).hexdigest()[:12]}"


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


def _sampler(optuna: Any, seed: int) -> Any:
    options: dict[str, Any] = {"seed": seed}
    if not hasattr(optuna.trial.Trial, "set_constraint"):
        options["constraints_func"] = lambda trial: [trial.user_attrs.get(n, 1.0) for n in (MEMORY, LAWS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of experimental options
        return optuna.samplers.TPESampler(multivariate=True, constant_liar=True, **options)


def _storage(optuna: Any, text: str) -> Any:
    """Return the storage that a text names.

    Raises:
        RequestError: it cannot be opened.
    """
    if "://" not in text and "@" in text and not os.path.lexists(text):
        raise RequestError("--storage names a file, or a URL with its scheme, like mysql://USER@HOST/DATABASE")
    try:
        if "://" in text:
            return optuna.storages.RDBStorage(text)
        folder = os.path.dirname(os.path.abspath(text))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"no such folder: {folder}")
        if os.path.exists(text) and not os.path.isfile(text):  # Optuna would wait for a lock beside it
            raise OSError("it is not a plain file")
        return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(text))
    except Exception as error:
        raise RequestError(
            f"the storage {without_secrets(text)} cannot be opened: {_reason(error, text)}; name a file, or a URL like "
            "sqlite:///studies.db"
        ) from None


def _reason(error: BaseException, url: str) -> str:
    """Return the cause of an error of a storage in one line, without what ``url`` says of users and keys."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    line = (str(getattr(cause, "orig", cause)).splitlines() or [""])[0]
    user, query = url.partition("://")[2].rpartition("@")[0], url.partition("?")[2]
    values = [part.partition("=")[2] for part in re.split("[&;]", query)]
    secrets = {*user.split(":"), user, *values}
    for secret in sorted((one for one in secrets if len(one) > 2), key=len, reverse=True):
        line = line.replace(secret, "***").replace(unquote(secret), "***")
    return f"{type(cause).__name__}: {without_secrets(line)}"
