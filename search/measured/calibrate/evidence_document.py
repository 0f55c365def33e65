"""Evidence of a fit (of time or memory) as part of a calibration file."""

from typing import Any

import numpy as np

from forerun.simulator.calibration import Evidence
from forerun.simulator.calibration.residual import Features
from forerun.spaces.documents import Document
from forerun.spaces.errors import RequestError

NUMBERS = ("error", "weight", "slopes", "numbers", "parts")
"""Keys with a number, or a row of numbers, for each run."""


def evidence_document(evidence: Evidence) -> dict[str, Any]:
    """Return the evidence as plain data."""
    return {
        "error": rounded(evidence.error),
        "weight": rounded(evidence.weight),
        "slopes": [rounded(row) for row in evidence.slopes],
        "numbers": [rounded(row) for row in evidence.features.numbers],
        "parts": [rounded(row) for row in evidence.features.parts],
        "words": [[str(word) for word in row] for row in evidence.features.words],
    }


def rounded(values: Any) -> list[float]:
    """Return numbers rounded to six digits."""
    return [float(f"{value:.6g}") for value in values]


def evidence_of(document: Document, where: tuple[str, ...], data: Any, constants: int, most: int) -> Evidence:
    """Return the evidence at ``where`` in a document; ``constants``: length of a row of slopes, ``most``: number of
    runs in the document.

    Raises:
        RequestError: parts contradict each other.
    """
    count = max(len(getattr(data, name)) for name in (*NUMBERS, "words"))
    if not 1 <= count <= most:
        raise RequestError(f"{document.where(where)}: must have one entry for some of {most} runs, but has {count}")
    for name in (*NUMBERS, "words"):
        if len(getattr(data, name)) != count:
            raise RequestError(f"{document.where((*where, name))}: must have one entry for each of {count} runs")
    if len({len(row) for row in data.words}) > 1:
        raise RequestError(f"{document.where((*where, 'words'))}: rows must have the same length")
    arrays = {name: _array(document, (*where, name), getattr(data, name)) for name in NUMBERS}
    if arrays["slopes"].shape != (count, constants):
        raise RequestError(f"{document.where((*where, 'slopes'))}: must have {constants} numbers for each run")
    features = Features(arrays["numbers"], arrays["parts"], np.array(data.words, dtype=np.str_))
    return Evidence(features=features, slopes=arrays["slopes"], error=arrays["error"], weight=arrays["weight"])


def _array(document: Document, where: tuple[str, ...], values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    try:
        return np.array(values, dtype=np.float64)
    except ValueError:
        raise RequestError(f"{document.where(where)}: rows must have the same length") from None
