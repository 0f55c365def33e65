"""What measured runs say of a request beyond its constants: the contract that a calibration keeps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from forerun.spaces.strategies.context import Context
    from forerun.spaces.strategies.table import StrategyTable


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldMemory:
    """Peak memory of N strategies as measured runs correct it: its ``parts``, the probability of each to run out of
    memory (``oom_risk``), and up to what peak it would count as fitting (``limit_bytes``)."""

    parts: Mapping[str, NDArray[np.float64]]
    oom_risk: NDArray[np.float64]
    limit_bytes: NDArray[np.float64]


class Correction(Protocol):
    """What measured runs say beyond the constants of a context (``forerun.simulator.calibration``)."""

    def factor(
        self, context: "Context", table: "StrategyTable", time_s: Mapping[str, NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Return a factor on the step time of every row of ``table``, given the parts of its predicted time."""

    def memory(
        self, context: "Context", table: "StrategyTable", memory_bytes: Mapping[str, NDArray[np.float64]]
    ) -> HeldMemory | None:
        """Return the peak memory of every row of ``table``, given the parts that were predicted; None where no run
        says anything of memory."""
