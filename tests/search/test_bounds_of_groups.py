"""Bounds of plans on groups of nodes are below every split of the layers, simulated one by one."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from forerun.search.answer.searches import search_groups
from forerun.search.explore.groups.group_plans import least_plan_s, ordered_plans
from forerun.search.explore.groups.group_search import _space, group_setting
from forerun.search.explore.groups.simulated_plans import simulate_groups
from forerun.search.explore.samplers.degree_classes import degree_classes
from forerun.search.request.request import Request
from forerun.search.request.setting import Setting
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Split, Strategy

GROUPS = {
    "faster and slower": ("dgx-h100", "dgx-a100-40"),
    "slower first": ("dgx-a100-80", "dgx-h100"),
    "other links": ("dgx-a100-80", "a100-pcie"),
}


def setting_on(tmp_path: Path, names: tuple[str, ...], **fields: object) -> Setting:
    path = tmp_path / "groups.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"cluster": name, "devices": 8} for name in names]}))
    return group_setting(Request(model="qwen3-0.6b", cluster=str(path), **fields), ("layers",))  # type: ignore[arg-type]


def splits(strategy: Strategy, layers: int, step: int) -> list[Strategy]:
    cuts = itertools.combinations(range(1, layers, step), strategy.pp - 1)
    return [
        replace(
            strategy,
            split=Split.EVEN,
            layers_per_stage=tuple(high - low for low, high in itertools.pairwise((0, *places, layers))),
        )
        for places in cuts
    ]


@pytest.mark.parametrize("names", list(GROUPS.values()), ids=list(GROUPS))
@pytest.mark.parametrize("batch,own", [(16, {"zero": ["1"], "mbs": ["1"]}), (8, {"zero": ["0"], "mbs": ["2", "8"]})])
@pytest.mark.slow
def test_no_split_is_faster_than_the_bound_of_its_class(
    names: tuple[str, ...], batch: int, own: dict[str, list[str]], tmp_path: Path
) -> None:
    own = {**own, "recompute": ["none"], "cp": ["1"], "sp": ["0", "1"], "pp": ["2", "4"]}
    setting = setting_on(tmp_path, names, global_batch=batch, seq_len=1024, overrides=own)
    space = _space(setting, ("layers",))
    layers, tried = setting.context.model.layer_count, 0
    for degree_class in degree_classes(space, least=least_plan_s)[::5]:
        pp = degree_class.strategy.pp
        for strategy in splits(degree_class.strategy, layers, 9 if pp == 2 else 13):
            try:
                row, _ = simulate_groups(setting, str(strategy))
            except RequestError:
                continue  # no legal one
            tried += 1
            assert degree_class.least_s <= row.step_time_s
    assert tried


@pytest.mark.parametrize("names", list(GROUPS.values()), ids=list(GROUPS))
@pytest.mark.slow
def test_plans_come_in_the_order_of_bounds_that_hold(names: tuple[str, ...], tmp_path: Path) -> None:
    own = {"recompute": ["none"], "cp": ["1"], "pp": ["2", "4"], "mbs": ["1", "4"]}
    setting = setting_on(tmp_path, names, global_batch=16, seq_len=2048, overrides=own)
    plans = list(itertools.islice(ordered_plans(_space(setting, ("layers",))), 40))

    assert [plan.least_s for plan in plans] == sorted(plan.least_s for plan in plans)
    for plan in plans[::4]:
        row, _ = simulate_groups(setting, str(plan.strategy))
        assert plan.least_s <= row.step_time_s


@pytest.mark.slow  # simulates every split
def test_the_best_of_two_stages_is_that_of_all_splits(tmp_path: Path) -> None:
    own = {"recompute": ["none"], "cp": ["1"], "pp": ["2"], "tp": ["2"], "mbs": ["1"], "zero": ["1"], "sp": ["1"]}
    fields = {"global_batch": 16, "seq_len": 2048, "overrides": own}
    setting = setting_on(tmp_path, GROUPS["faster and slower"], **fields)
    board = search_groups(setting)
    every = splits(board.rows[0].strategy, setting.context.model.layer_count, 1)

    least_s = min(simulate_groups(setting, str(strategy))[0].step_time_s for strategy in every)
    assert board.rows[0].step_time_s <= least_s * (1 + 1e-9)
