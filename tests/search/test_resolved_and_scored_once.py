"""A request is resolved once, whatever is made of it, and a winner is scored once."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from sweep_cases import SERIAL, TINY, SameCuts

from forerun.search import search
from forerun.search.answer.searches import explore_request, search_request
from forerun.search.explore.samplers.registry import Exploring
from forerun.search.order.ideas import degrees
from forerun.search.report import report_html
from forerun.search.request import resolve as resolve_module
from forerun.search.request.setting import Setting
from forerun.search.sweep import SweepPlan, run_sweep
from forerun.search.sweep import progress as progress_module
from forerun.simulator import ScoreTable, score
from forerun.spaces.strategies import Context, StrategyTable


@pytest.fixture
def resolved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the models of all requests that are resolved from now on."""
    models: list[str] = []
    real = resolve_module.resolve_model

    def resolve_model(name: str, **options: object) -> object:
        models.append(name)
        return real(name, **options)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(resolve_module, "resolve_model", resolve_model)
    return models


@pytest.mark.parametrize("fields", [{}, {"objective": "throughput,gpus"}, {"all_variants": True}], ids=str)
def test_winners_of_a_search_are_scored_once(make_setting: Callable[..., Setting], fields: dict[str, object]) -> None:
    setting = make_setting(gpus="8..16", overrides={"mbs": [1], "cp": [1]}, top=20, **fields)
    times: Counter[str] = Counter()

    def counting(context: Context, table: StrategyTable) -> ScoreTable:
        asked = setting.context  # notes ask about other batches, profiles, risks and memories too
        same = (context.workload, context.framework, context.oom_risk) == (
            asked.workload,
            asked.framework,
            asked.oom_risk,
        )
        if same and context.cluster.device.memory_bytes == asked.cluster.device.memory_bytes:
            times.update(str(table.strategy(row)) for row in range(len(table)))
        return score(context, table)

    board = search_request(setting, score=counting)

    best = {degrees(row.strategy): row for row in reversed(board.rows)}  # of each set of degrees; others are variants
    assert len(best) > 1 and {times[row.name] for row in best.values()} == {1}


@pytest.mark.slow
def test_what_a_sampler_found_is_scored_once(make_setting: Callable[..., Setting]) -> None:
    overrides = {"mbs": [1], "cp": [1], "zero": [1], "vpp": [1]}
    setting = make_setting(model="llama3-70b", gpus="64", overrides=overrides, top=20)
    times: Counter[str] = Counter()

    def counting(context: Context, table: StrategyTable) -> ScoreTable:
        times.update(str(table.strategy(row)) for row in range(len(table)))
        return score(context, table)

    board = explore_request(setting, exploring=Exploring(per_stage=("layers",), evaluations=300), score=counting)
    # Notes on row one score it under other switches.
    staged = [row for row in board.rows[1:] if row.strategy.layers_per_stage is not None]

    assert staged and {times[row.name] for row in staged} == {1}


def test_a_page_resolves_its_request_once(resolved: list[str]) -> None:
    board = search(
        "llama3-8b", cluster="dgx-h100", gpus="4..16", global_batch=32, seq_len=4096, top=3, overrides={"pp": [2]}
    )
    resolved.clear()
    page = report_html(board)

    assert resolved == ["llama3-8b"]
    for section in ("stages", "timeline", "scaling", "launch"):
        assert f'id="{section}"' in page


@pytest.mark.slow
def test_a_search_in_parts_resolves_its_request_once(
    tmp_path: Path, plan: SweepPlan, resolved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "Cuts", SameCuts)
    one = SweepPlan(pieces=plan.pieces[:1], objective=plan.objective)
    resolved.clear()
    run_sweep(one, tmp_path / "run", workers=SERIAL, chunk_times=TINY)

    assert len((tmp_path / "run" / "parts.jsonl").read_text().splitlines()) > 2
    assert len(resolved) == 1
