"""How well what was said of yes-or-no outcomes fits what happened."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def loss_of(said: Floats, happened: Floats, weight: Floats | None = None) -> str:
    """Return the mean negative logarithm of what was said (0 to 1) of what happened (0 or 1), as text; empty where
    there is nothing."""
    if not len(said):
        return ""
    sure = np.clip(said, 1e-9, 1 - 1e-9)
    return f"{-np.average(np.log(np.where(happened > 0, sure, 1 - sure)), weights=weight):.3f}"
