"""File with the best strategy so far, which survives a killed exploration."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forerun.search.board.rows import rows_from
from forerun.search.explore.samplers.contract import Evaluation
from forerun.search.files.documents import SCHEMA, dump_json, versions
from forerun.search.request.setting import Setting
from forerun.spaces.files import write_text
from forerun.spaces.strategies import Strategy

NAME = "best.json"


@dataclass(slots=True)
class BestFile:
    """Writer of the best row after each improvement, atomically."""

    path: Path
    setting: Setting
    sampler: str
    start_s: float = field(default_factory=time.monotonic)

    def improved(self, strategy: Strategy, evaluation: Evaluation, scored: int) -> None:
        """Write the best strategy so far; ``scored``: strategies scored until then.

        Raises:
            RequestError: the file cannot be written.
        """
        scores, price = evaluation.scores.take(np.array([evaluation.row])), self.setting.usd_per_gpu_hour
        (row,) = rows_from(self.setting.context, [strategy], scores, usd_per_gpu_hour=price)
        document: dict[str, Any] = {
            "schema": SCHEMA,
            **row.to_json(),
            "sampler": self.sampler,
            "scored": scored,
            "elapsed_s": time.monotonic() - self.start_s,
            "request": self.setting.to_json(),
            "versions": versions(),
        }
        write_text(self.path, dump_json(document) + "\n")
