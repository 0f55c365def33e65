"""The committed tables of published runs: every row is mapped or skipped for a reason that is meant."""

from collections import Counter
from pathlib import Path

import pytest

from forerun.search.measured.validate import RULES, RunSet, load_runs

pytestmark = pytest.mark.slow  # reads two thousand rows
MEASURED = Path(__file__).resolve().parents[2] / "benchmarks" / "measured"

COMPLETE = (
    "dlperf_gpt",
    "hf_ultrascale",
    "korthikanti2022",
    "llm_foundry",
    "mlperf_llm",
    "simumax_b200",
    "vtrain_multi",
)
"""Tables of which every measured row can be expressed."""


@pytest.fixture(scope="module")
def published() -> RunSet:
    return load_runs(sorted(MEASURED.glob("*.csv")))


def test_every_measured_row_of_the_trusted_tables_is_mapped(published: RunSet) -> None:
    timed = Counter(run.file for run in published.runs if run.outcome == "ok" and run.step_time_s)
    assert {name: timed[name] for name in COMPLETE} == {name: published.measured[name] for name in COMPLETE}


def test_all_tables_together_are_mostly_mapped(published: RunSet) -> None:
    timed = sum(run.outcome == "ok" and run.step_time_s is not None for run in published.runs)
    assert timed > 0.8 * sum(published.measured.values())


def test_strategies_fit_their_runs(published: RunSet) -> None:
    for run in published.runs:
        assert run.strategy.devices == int(float(run.cells["gpus"])), run.run_id
        stages = run.strategy.layers_per_stage
        assert stages is None or sum(stages) == run.context.model.layer_count, run.run_id
        assert run.strategy.dp * run.strategy.mbs <= run.context.workload.global_batch, run.run_id


def test_what_was_filled_in_is_a_known_rule(published: RunSet) -> None:
    assert {code for run in published.runs for code in run.filled} <= set(RULES)


def test_restricted_sources_are_not_committed() -> None:
    names = {path.stem for path in MEASURED.glob("*.csv")}
    assert names
    assert not names & {"aleph_alpha_layouts", "lucie", "amp", "paradl"}
    assert not any("stas00" in path.read_text(encoding="utf-8").lower() for path in MEASURED.glob("*.csv"))


@pytest.mark.parametrize(
    ("run_id", "strategy"),
    [
        ("korthikanti2022-0003", "tp8 pp8 dp1 mbs1 vpp3 sp recompute=selective schedule=interleaved"),
        ("vocab_parallel-0001", "tp1 pp8 dp1 mbs1 layers=4,4,4,5,5,5,5,0"),
        ("mlperf_llm-0022", None),
        ("vtrain_multi-0000", "tp1 pp1 dp64 mbs8 recompute=full"),
    ],
)
def test_known_rows(published: RunSet, run_id: str, strategy: str | None) -> None:
    (run,) = (run for run in published.runs if run.run_id == run_id)
    if strategy is not None:
        assert str(run.strategy) == strategy
    else:  # 126 layers on 64 virtual stages: embedding and head count as layers
        assert run.strategy.split.name == "LIGHT_ENDS"
