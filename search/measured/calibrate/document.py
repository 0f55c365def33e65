"""A calibration as a file: constants with uncertainty and provenance, and the fitted runs.

The file has the original runs, so that more can be added and the fit repeated; ``evidence`` is the result of the fit
per run, from which other strategies and their intervals are predicted without another fit.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from forerun.search.files.documents import cost_model_version
from forerun.search.files.row_yaml import RowDumper
from forerun.search.measured.calibrate.evidence_document import evidence_document, evidence_of
from forerun.search.measured.calibrate.machine import Machine
from forerun.search.measured.calibrate.memory_document import memory_document, memory_of
from forerun.search.measured.calibrate.mixture_document import mixture_document, mixture_of
from forerun.simulator.calibration import NAMES, FittedConstant, FittedFactor, Posterior, constant_named
from forerun.simulator.calibration.constants import C
from forerun.spaces.documents import Document, read_document, validate
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.reading import digest_of
from forerun.spaces.strategies import Context

if TYPE_CHECKING:
    from forerun.search.measured.calibrate.schema import CalibrationDocument

SCHEMA = 2
"""Schema of written files; files of another schema are fitted again (1 had a single prior)."""
_AGAIN = "forerun calibrate --append --out"
_GRAPHS_MEMORY = "memory of operator graphs is not calibrated: it is the catalogue's"
LARGEST = 16 << 20
MOST_RUNS = 1000
"""Most runs of one machine: more add little, and every prediction is compared with all runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Calibrated constants of a machine.

    ``source``: name of the file in messages. ``runs``: cells of the rows, by column. ``error``: figures of the fit.
    ``made``: version, day and files. ``memory``: factors on the parts of memory, empty if no run measured memory.
    """

    source: str
    machine: Machine
    posterior: Posterior
    constants: tuple[FittedConstant, ...]
    error: Mapping[str, float]
    made: Mapping[str, Any]
    runs: tuple[Mapping[str, str], ...]
    memory: tuple[FittedFactor, ...] = ()

    def applied(self, context: C) -> tuple[C, tuple[str, ...]]:
        """Return the context on the calibrated machine, and the notes on it.

        Raises:
            RequestError: the context is of another machine.
        """
        remarks = self.machine.check(context, self.source)
        before, after = self.error["before_median_pct"], self.error["left_out_median_pct"]
        note = (
            f"calibrated by {self.source}: {len(self.posterior.evidence)} runs on {self.machine.device} with "
            f"{self.machine.framework}, median error {before:.1f} % before, {after:.1f} % when left out"
        )
        memory = self._memory_notes() if isinstance(context, Context) else (_GRAPHS_MEMORY,)
        return self.posterior.applied(context), (note, *memory, *remarks)

    def _memory_notes(self) -> tuple[str, ...]:
        runs = self.posterior.held
        if runs is None:
            return (f"no run of {self.source} has a peak memory or ran out of it: memory is the catalogue's",)
        before, after = (self.error.get(f"memory_{name}_median_pct") for name in ("before", "left_out"))
        error = "" if before is None else f", median error {before:.1f} % before, {after:.1f} % when left out"
        return (f"memory, and the risk of running out of it, calibrated by {len(runs.evidence)} runs{error}",)

    def check_profile(self, profile: Path | None) -> None:
        """Check that the profile is the one of the fit, since the constants apply on top of it.

        Raises:
            RequestError: the profile differs, is missing, or should be missing.
        """
        recorded, named = self.made.get("profile"), None if profile is None else digest_of(profile)[:16]
        if recorded != named:
            fix = "leave --profile out" if recorded is None else "name that profile with --profile"
            raise RequestError(
                f"{self.source} was fitted {'without a' if recorded is None else 'on another'} profile"
                f"{'' if named else ' than none'}; {fix}, or fit it again with `forerun calibrate --profile`"
            )

    @property
    def digest(self) -> str:
        """Hash of the contents, equal for equal runs and fits."""
        return hashlib.sha256(text_of(self).encode()).hexdigest()[:32]


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Write a calibration.

    Raises:
        RequestError: the file cannot be written, or its name does not end in ``.yaml``.
    """
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise RequestError(f"{path}: a calibration is written to a .yaml file")
    write_text(path, text_of(calibration))


def text_of(calibration: Calibration) -> str:
    """Return the YAML text of a calibration."""
    document: dict[str, Any] = {
        "calibration": SCHEMA,
        "machine": {
            "device": calibration.machine.device,
            "framework": calibration.machine.framework,
            "links": list(calibration.machine.links),
        },
        "made": dict(calibration.made),
        "error": {name: round(value, 3) for name, value in calibration.error.items()},
        "constants": {f.constant.name: _constant(f) for f in calibration.constants if f.refused is None},
        "not_determined": {f.constant.name: f.refused for f in calibration.constants if f.refused is not None},
        "runs": [dict(cells) for cells in calibration.runs],
        "priors": mixture_document(calibration.posterior.mixture),
        "evidence": evidence_document(calibration.posterior.evidence),
    }
    if calibration.posterior.held is not None:
        document["memory"] = memory_document(calibration.posterior.held, calibration.memory)
    text: str = yaml.dump(document, Dumper=RowDumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def _constant(constant: FittedConstant) -> dict[str, Any]:
    low, high = constant.factors(1.645)
    name = "added" if constant.constant.share else "factor"
    return {
        "what": constant.constant.title,
        name: float(f"{constant.constant.factor(constant.z):.4g}"),
        "between": [float(f"{low:.4g}"), float(f"{high:.4g}")],
        "z": float(f"{constant.z:.6g}"),
        "error": float(f"{constant.error:.4g}"),
    }


def read_calibration(path: Path) -> Calibration:
    """Read a calibration that ``forerun calibrate`` wrote.

    Raises:
        RequestError: the file cannot be read, is not a calibration, or was made with another version of the cost model.
    """
    from forerun.search.measured.calibrate.schema import (
        CalibrationDocument,  # imports pydantic, which writing does not need
    )

    document, fix = read_document(path, max_bytes=LARGEST, own=True), f"fit its runs again with `{_AGAIN} {path}`"
    form = document.data.get("calibration") if isinstance(document.data, dict) else None
    if isinstance(form, int) and form != SCHEMA:
        raise RequestError(f"{path} is a calibration of form {form}, and this version reads form {SCHEMA}; {fix}")
    data = validate(document, CalibrationDocument)
    made, current = data.made.get("cost_model"), cost_model_version()
    if made != current:
        raise RequestError(
            f"{path} was fitted with another version of the cost model ({made}, this is {current}); {fix}"
        )
    return _calibration(document, data)


def read_runs(path: Path) -> tuple[Mapping[str, str], ...]:
    """Return the cells of the runs of a calibration, of any version.

    Raises:
        RequestError: the file cannot be read or is not a calibration.
    """
    from forerun.search.measured.calibrate.schema import AnyCalibration

    return tuple(validate(read_document(path, max_bytes=LARGEST, own=True), AnyCalibration).runs)


def _calibration(document: Document, data: "CalibrationDocument") -> Calibration:
    """Return the calibration of a checked document.

    Raises:
        RequestError: parts contradict each other, or a name is unknown.
    """
    evidence = evidence_of(document, ("evidence",), data.evidence, len(NAMES), len(data.runs))
    memory, factors = (None, ()) if data.memory is None else memory_of(document, data.memory, len(data.runs))
    constants = []
    for name, part in data.constants.items():
        constants.append(FittedConstant(constant=constant_named(name), z=part.z, error=part.error, refused=None))
    for name, reason in data.not_determined.items():
        constants.append(FittedConstant(constant=constant_named(name), z=0.0, error=1.0, refused=reason))
    z = {fitted.constant.name: fitted.z for fitted in constants if fitted.refused is None}
    order = {name: place for place, name in enumerate(NAMES)}
    return Calibration(
        source=Path(document.source).name,
        machine=Machine(device=data.machine.device, framework=data.machine.framework, links=tuple(data.machine.links)),
        posterior=Posterior(
            z=z, evidence=evidence, mixture=mixture_of(document, data.priors, evidence, z), held=memory
        ),
        constants=tuple(sorted(constants, key=lambda fitted: order[fitted.constant.name])),
        error=data.error.model_dump(),
        made=dict(data.made),
        runs=tuple(data.runs),
        memory=factors,
    )
