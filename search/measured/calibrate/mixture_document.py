"""The part of a calibration file about the mixture of priors and their weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from forerun.search.measured.calibrate.evidence_document import rounded
from forerun.simulator.calibration import NAMES, USUAL, Evidence, Prior, PriorMixture
from forerun.simulator.calibration.mixture import restored
from forerun.spaces.documents import Document
from forerun.spaces.errors import RequestError

MOST = 64
"""Most priors in a file: every interval uses all of them."""


def mixture_document(mixture: PriorMixture) -> list[dict[str, Any]]:
    """Return the share and the weights of every prior as plain data."""
    return [
        {
            "constants": prior.constants,
            "residual": prior.residual,
            "noise": prior.noise,
            "share": float(f"{share:.6g}"),
            "weight": rounded(weight),
        }
        for prior, share, weight in zip(mixture.priors, mixture.shares, mixture.weight, strict=True)
    ]


def mixture_of(document: Document, data: Sequence[Any], evidence: Evidence, z: Mapping[str, float]) -> PriorMixture:
    """Return the mixture of a checked document; ``z``: fitted constants by name.

    Raises:
        RequestError: shares do not add up to 1, or the number of weights differs from the number of runs.
    """
    for place, part in enumerate(data):
        if len(part.weight) != len(evidence):
            where = document.where(("priors", place, "weight"))
            raise RequestError(f"{where}: must have one number for each of {len(evidence)} runs")
    shares = np.array([part.share for part in data], dtype=np.float64)
    if not abs(shares.sum() - 1) < 1e-3:
        raise RequestError(
            f"{document.where(('priors',))}: shares must be positive and add up to 1, not {shares.sum():g}"
        )
    used = np.array([name in z for name in NAMES])
    priors = [Prior(constants=part.constants, residual=part.residual, noise=part.noise) for part in data]
    return restored(evidence, used, USUAL, priors, shares, np.array([part.weight for part in data], dtype=np.float64))
