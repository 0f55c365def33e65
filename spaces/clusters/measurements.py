"""Measured seconds of a machine, which devices and clusters carry and cost rules prefer to their own."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Surface = Callable[..., Floats]


class Measurements(Protocol):
    """Measured seconds by operator (``forerun.simulator.costs.measured``)."""

    def seconds(self, name: str, shape: tuple[Floats, ...], surface: Surface) -> Floats:
        """Return the seconds of operator ``name`` at every ``shape``; ``surface(*shape)``: by the fitted rule."""
