"""A small setting, a scorer whose results are easy to predict, and a small sweep."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sweep_cases import PLAN, SERIAL, results

from forerun.search.answer import searches
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.scorer import Scorer
from forerun.search.request.setting import Setting
from forerun.search.sweep import SweepPlan, read_plan, run_sweep
from forerun.simulator import MEMORY_PARTS, TIME_PARTS, ScoreTable
from forerun.spaces.strategies import Context, StrategyTable


@pytest.fixture
def make_setting() -> Callable[..., Setting]:
    """Return a maker of settings: Llama 3 8B on 16 H100 unless told otherwise."""

    def make(**fields: object) -> Setting:
        known = {"model": "llama3-8b", "cluster": "dgx-h100", "gpus": "16", "global_batch": 64, "seq_len": 4096}
        return resolve(Request(**{**known, **fields}))  # type: ignore[arg-type]  # values of the fields' types

    return make


ANSWERED: dict[tuple[str, bytes], Any] = {}
"""Found candidates and leaderboards, by what was asked."""


@pytest.fixture
def each_search_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer a search that an earlier test asked with the leaderboard of then: for tests of what is done with one."""
    for name in ("search_with", "leaderboard_of"):
        monkeypatch.setattr(searches, name, _once(name, getattr(searches, name)))


def _once(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def remembering(asked: object, *arguments: object, **options: object) -> Any:
        key = name, pickle.dumps(asked)
        if key not in ANSWERED:
            ANSWERED[key] = function(asked, *arguments, **options)
        return ANSWERED[key]

    return remembering


@pytest.fixture
def few_times() -> Scorer:
    """Return a scorer with only five different step times, so that most candidates tie, and two memory sizes."""

    def score(context: Context, table: StrategyTable) -> ScoreTable:
        columns = [table.column(axis) for axis in ("tp", "pp", "mbs", "zero", "recompute")]
        step_s = 1.0 + sum(columns) % 5
        limit = context.cluster.device.memory_bytes
        peak = np.where((table.column("tp") + table.column("mbs")) % 3 == 0, 1.25 * limit, 0.5 * limit)
        return ScoreTable(
            step_time_s=step_s,
            time_s={part: step_s / len(TIME_PARTS) for part in TIME_PARTS},
            peak_memory_bytes=peak,
            allocated_bytes=peak,
            memory_bytes={part: peak / len(MEMORY_PARTS) for part in MEMORY_PARTS},
            peak_stage=np.zeros(len(table), dtype=np.int64),
            fits=peak <= limit,
        )

    return score


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Return the results of the sweep of ``plan``, run once by one worker and never disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "plan.yaml").write_text(PLAN)
    run_sweep(read_plan(folder / "plan.yaml"), folder / "run", workers=SERIAL)
    return results(folder / "run")


@pytest.fixture
def plan(tmp_path: Path) -> SweepPlan:
    """Return a sweep of eight searches, which stands in ``plan.yaml`` too."""
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    return read_plan(path)
