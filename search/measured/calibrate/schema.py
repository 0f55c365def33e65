"""Schema of a calibration file: every number is limited to the range of finite predictions."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from forerun.search.measured.calibrate.mixture_document import MOST

Number = int | float
Logarithm = Annotated[Number, Field(ge=-20, le=20)]
"""Logarithm of a ratio of two times, or its change by a standard deviation of a constant."""
Deviations = Annotated[Number, Field(ge=-10, le=10)]
Spread = Annotated[Number, Field(ge=0, le=10)]
Place = Annotated[Number, Field(ge=-1e4, le=1e4)]
"""Coordinate of a run along an axis, in length scales."""
Weight = Annotated[Number, Field(ge=1e-12, le=1)]
"""Weight of a run in the fit; an error of a factor of a thousand leaves more than the least one."""
Factor = Annotated[Number, Field(ge=1e-2, le=1e2)]
Scale = Annotated[Number, Field(ge=1e-4, le=1e4)]


class Part(BaseModel):
    """Base of the parts of a calibration."""

    model_config = ConfigDict(extra="forbid", strict=True)


class MachinePart(Part):
    """The calibrated machine."""

    device: str
    framework: str
    links: list[str]


class ConstantPart(Part):
    """One fitted constant."""

    what: str
    factor: Number | None = None
    added: Number | None = None
    between: list[Number]
    z: Deviations
    error: Spread


class EvidencePart(Part):
    """Evidence of the fit per run."""

    error: list[Logarithm]
    weight: list[Weight]
    slopes: list[list[Logarithm]]
    numbers: list[list[Place]]
    parts: list[list[Place]]
    words: list[list[str]]


class PriorPart(Part):
    """One prior and its share."""

    constants: Factor
    residual: Factor
    noise: Factor
    share: Annotated[Number, Field(ge=0, le=1)]
    weight: list[Weight]


class FactorPart(Part):
    """One fitted factor on a part of memory."""

    what: str
    factor: Number
    between: list[Number]
    z: Deviations
    error: Spread


class MemoryPart(Part):
    """The fit of memory."""

    factors: dict[str, FactorPart]
    not_determined: list[str]
    scale: Scale
    evidence: EvidencePart


class ErrorPart(BaseModel):
    """Figures of the fit; there may be more."""

    model_config = ConfigDict(extra="allow", strict=True)
    __pydantic_extra__: dict[str, Number]

    before_median_pct: Number
    left_out_median_pct: Number


class CalibrationDocument(Part):
    """A complete calibration file."""

    calibration: int
    machine: MachinePart
    made: dict[str, Any]
    error: ErrorPart
    constants: dict[str, ConstantPart]
    not_determined: dict[str, str]
    runs: Annotated[list[dict[str, str]], Field(min_length=1)]
    priors: Annotated[list[PriorPart], Field(min_length=1, max_length=MOST)]
    evidence: EvidencePart
    memory: MemoryPart | None = None


class AnyCalibration(BaseModel):
    """Fields common to calibrations of all versions."""

    model_config = ConfigDict(extra="ignore", strict=True)

    calibration: int
    runs: list[dict[str, str]]
