"""Studies of Optuna for all verbs: their storages, and the records of their trials.

A trial is one strategy. Its parameters are the choices of its axes in the terms of the glossary, its constraints are
``MEMORY`` and ``LAWS``, its user attributes the prediction. Works with Optuna 4 and 5.
"""

import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import without_secrets

STRATEGY = "strategy"
"""Attribute of a trial with its strategy as text."""
MEMORY, LAWS = "memory", "laws"
"""Constraints of a trial, feasible at or below zero: GiB above the limit of the device, and broken laws."""

CREATED_S = 0.5
"""Seconds in which another process creates the tables of a new database."""


def open_storage(text: str) -> Any:
    """Open a storage of studies.

    Parameters
    ----------
    text
        File (a journal), or RDB URL.

    Raises
    ------
    RequestError
        The storage cannot be opened.
    """
    import optuna

    from forerun.search.files.study_file import StudyFile  # imported late: most verbs do not need Optuna

    if "://" not in text and "@" in text and not os.path.lexists(text):
        raise RequestError("--storage names a file, or a URL with its scheme, like mysql://USER@HOST/DATABASE")
    try:
        if "://" in text:
            return _database(text)
        folder = os.path.dirname(os.path.abspath(text))
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"no such folder: {folder}")
        return optuna.storages.JournalStorage(StudyFile(Path(text)))
    except Exception as error:
        raise RequestError(
            f"the storage {without_secrets(text)} cannot be opened: {reason(error, text)}; name a file, or a URL like "
            "sqlite:///studies.db"
        ) from None


def _database(url: str) -> Any:
    """Open a database; a second attempt finds the tables that another process was creating during the first."""
    import optuna

    try:
        return optuna.storages.RDBStorage(url)
    except Exception:
        time.sleep(CREATED_S)
        return optuna.storages.RDBStorage(url)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from printing, warnings of experimental features included."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def predicted_facts(
    *, strategy: str, gpus: int, step_s: float, tokens: float, mfu: float, peak_gib: float, oom_risk: float
) -> dict[str, Any]:
    """Return a prediction as user attributes; ``tokens``: tokens of a step."""
    return {
        STRATEGY: strategy,
        "gpus": gpus,
        "predicted_step_time_s": step_s,
        "predicted_tokens_per_s": tokens / step_s,
        "predicted_mfu": mfu,
        "predicted_peak_gib": peak_gib,
        "oom_risk": oom_risk,
    }


def record(trial: Any, facts: Mapping[str, Any], constraints: Mapping[str, float]) -> None:
    """Write user attributes and constraints of a trial under way."""
    for name, value in facts.items():
        trial.set_user_attr(name, value)
    for name, value in constraints.items():
        if hasattr(trial, "set_constraint"):  # Optuna 5
            trial.set_constraint(name, value)
        else:
            trial.set_user_attr(name, value)


def constraints_of(trial: Any) -> dict[str, float]:
    """Return the constraints of a trial."""
    kept = getattr(trial, "constraints", trial.user_attrs)  # Optuna 4 has no field for them
    return {name: kept[name] for name in (MEMORY, LAWS) if name in kept}


def finished(*, facts: Mapping[str, Any], constraints: Mapping[str, float], **fields: Any) -> Any:
    """Return a finished trial; ``fields``: fields of ``optuna.trial.create_trial``."""
    import optuna

    if hasattr(optuna.trial.FrozenTrial, "constraints"):  # Optuna 5
        return optuna.trial.create_trial(user_attrs=dict(facts), constraints=dict(constraints), **fields)
    return optuna.trial.create_trial(user_attrs={**facts, **constraints}, **fields)


def reason(error: BaseException, url: str) -> str:
    """Return the cause of an error of a storage in one line, without the user and the keys in ``url``."""
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
