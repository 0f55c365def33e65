"""The part of a calibration file that is about memory: factors with their uncertainty, and their evidence."""

from collections.abc import Sequence
from typing import Any

from forerun.search.measured.calibrate.evidence_document import evidence_document, evidence_of
from forerun.simulator.calibration import FACTORS, FittedFactor, MemoryPosterior
from forerun.spaces.documents import Document
from forerun.spaces.errors import unknown


def memory_document(posterior: MemoryPosterior, factors: Sequence[FittedFactor]) -> dict[str, Any]:
    """Return a fit of memory as plain data."""
    return {
        "factors": {one.factor.name: _factor(one) for one in factors if one.determined},
        "not_determined": [one.factor.name for one in factors if not one.determined],
        "scale": float(f"{posterior.scale:.6g}"),
        "evidence": evidence_document(posterior.evidence),
    }


def _factor(factor: FittedFactor) -> dict[str, Any]:
    low, high = factor.between
    return {
        "what": factor.factor.title,
        "factor": float(f"{factor.factor.factor(factor.z):.4g}"),
        "between": [float(f"{low:.4g}"), float(f"{high:.4g}")],
        "z": float(f"{factor.z:.6g}"),
        "error": float(f"{factor.error:.4g}"),
    }


def memory_of(document: Document, data: Any, most: int) -> tuple[MemoryPosterior, tuple[FittedFactor, ...]]:
    """Return the fit of memory in a checked document; ``most``: its number of runs.

    Raises:
        RequestError: parts contradict each other, or a name is unknown.
    """
    known = {factor.name: factor for factor in FACTORS}
    for name in (*data.factors, *data.not_determined):
        if name not in known:
            raise unknown("part of memory", name, tuple(known))
    evidence = evidence_of(document, ("memory", "evidence"), data.evidence, len(FACTORS), most)
    factors = tuple(
        FittedFactor(factor=factor, z=data.factors[name].z, error=data.factors[name].error, determined=True)
        if name in data.factors
        else FittedFactor(factor=factor, z=0.0, error=1.0, determined=False)
        for name, factor in known.items()
    )
    fitted = {one.factor.name: one.z for one in factors if one.determined}
    return MemoryPosterior(z=fitted, evidence=evidence, scale=data.scale), factors
