"""The user's current run: a strategy as text or framework files, and an optional measured step."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forerun.search.formats import Imported, import_files
from forerun.search.formats.contract import Steps
from forerun.search.formats.logs import stated_step_s
from forerun.search.formats.megatron_log import NO_ARGUMENTS
from forerun.search.formats.table import format_named
from forerun.spaces.errors import RequestError
from forerun.spaces.files import exists
from forerun.spaces.strategies import parse_strategy

_WORD = re.compile(r"(dp|tp|pp|cp|ep|etp|mbs|vpp|zero)\d+|sp|(recompute|schedule|split|placement|layers)=\S+")
UNCERTAIN = "dp=1:"
"""First words of the readers' message about a missing number of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """The user's description of a run.

    ``workload`` and ``model`` have the facts of its files by forerun's names; ``framework`` is the profile of their
    format (None: no profile, or a strategy as text), ``switches`` its settings, ``unmodelled`` settings that change
    speed or memory without a switch. ``steps``: measured steps (source: ``measured_from``) with the workload
    ``measured_workload``; ``counted`` is 0 for a time without a log. ``named`` and ``measured_as`` are the user's texts
    of the two flags.
    """

    source: str
    strategy: Any
    named: tuple[str, ...] = ()
    measured_as: str | None = None
    format: str | None = None
    framework: str | None = None
    workload: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    unmodelled: Mapping[str, Any] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    steps: Steps | None = None
    measured_from: str | None = None
    measured_workload: Mapping[str, Any] = field(default_factory=dict)


def read_present(named: Sequence[str], measured: str | None = None, *, gpus: int | None = None) -> Present:
    """Return the run of ``--baseline`` (files of one run, or one strategy) and ``--measured`` (a log, or seconds).

    ``gpus`` is the searched number of devices, the default for files without a number. Without ``named``, the log must
    state the strategy.

    Raises
    ------
    RequestError
        Nothing is named, or a text is neither a readable file nor a strategy or a time.
    """
    steps, log = (None, None) if measured is None else _measured(measured)
    if named:
        present = _named(named, gpus)
    elif log is not None and measured is not None:
        present = _imported(measured, log)
    else:
        raise RequestError("--measured with a time needs --baseline: whose step is it?")
    present = replace(present, named=tuple(named), measured_as=measured)
    return _with_steps(present, measured, steps, log)


def _with_steps(present: Present, measured: str | None, steps: Steps | None, log: Imported | None) -> Present:
    """Return a run with its measured step, and a note if the log has another strategy."""
    if steps is None:
        return present
    notes = present.notes
    if log is not None and NO_ARGUMENTS not in log.notes and log.strategy != present.strategy:
        notes = (*notes, f"the log {measured} is of another strategy: {log.strategy}")
    workload = log.workload if log is not None else {}
    return replace(present, steps=steps, measured_from=measured, measured_workload=workload, notes=notes)


def _named(named: Sequence[str], gpus: int | None) -> Present:
    if not all(text.strip() for text in named):
        raise RequestError("--baseline names a file, a folder or a strategy, but got an empty text")
    paths = [Path(text) for text in named]
    if len(named) == 1 and not exists(paths[0]):
        return _text(named[0])
    imported = import_files(paths)
    assumed = [text for text in imported.defaults if text.startswith(UNCERTAIN)]
    if assumed and gpus is not None:
        try:
            imported = import_files(paths, gpus=gpus)
        except RequestError as error:
            raise RequestError(f"{error}; the baseline does not say how many GPUs it runs on") from None
        imported = _with_note(imported, f"the files do not say how many GPUs there are: taken as the {gpus} searched")
    return _imported(" ".join(named), imported)


def _with_note(imported: Imported, note: str) -> Imported:
    return replace(imported, notes=(*imported.notes, note))


def _imported(source: str, imported: Imported) -> Present:
    if NO_ARGUMENTS in imported.notes:
        raise RequestError(f"{source} does not list the arguments of its run; name its strategy with --baseline")
    return Present(
        source=source,
        strategy=imported.strategy,
        format=imported.format,
        framework=format_named(imported.format).framework,
        workload=imported.workload,
        model=imported.model,
        switches=imported.switches,
        unmodelled=imported.unmodelled,
        other=imported.other,
        unknown=imported.unknown,
        notes=(*(f"assumed {text}" for text in imported.defaults), *imported.notes),
        steps=imported.measured,
        measured_from=None if imported.measured is None else source,
        measured_workload=imported.workload if imported.measured is not None else {},
    )


def _text(text: str) -> Present:
    """Return the text of a strategy, like ``tp4 pp2 dp8 mbs1``."""
    if not any(map(_WORD.fullmatch, text.split())):
        raise RequestError(f'{text!r} is not a file, and no strategy like "tp4 pp2 dp8 mbs1 zero1 sp"')
    return Present(source=text, strategy=parse_strategy(text))


def _measured(text: str) -> tuple[Steps, Imported | None]:
    """Return the steps and facts of a log, or the time in the user's text."""
    steps = seconds_of(text)
    if steps is not None:
        return steps, None
    imported = import_files([Path(text)], format="megatron-log")
    if imported.measured is None:
        raise RequestError(f"{text} has no step times")
    return imported.measured, imported


def seconds_of(text: str) -> Steps | None:
    """Return the step time in the user's text; None if the text is a file or no time.

    Raises
    ------
    RequestError
        The time is not above 0.
    """
    seconds = stated_step_s(text)
    if seconds is None:
        return None
    return Steps(step_time_s=seconds, low_s=seconds, high_s=seconds, counted=0, skipped=0)
