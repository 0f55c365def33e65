"""Planned stages of unlike numbers of devices: exact, legal, priced as the event engine prices them, and faster."""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from forerun_examples import dense_model, moe_model, request, small_cluster

from forerun.search.cli import main
from forerun.search.explore.planned.cuts import cuts_of, devices_of
from forerun.search.explore.planned.dynamic_program import STEP, best_paths
from forerun.search.explore.planned.options import Pipeline, PlannedStage, PlannedStages, stage_plans, transfers_of
from forerun.search.explore.planned.planned_trees import Plan, plan_tree, plans_of
from forerun.simulator.assignment.memory import stage_memory
from forerun.simulator.assignment.of_tree import assign_tree
from forerun.simulator.events.trees import simulate_tree
from forerun.spaces.strategies import Context, Recompute, StrategySpace, default_choices
from forerun.spaces.trees import TreeStrategies, flat_of, legal_tree, model_layers, resolve_tree
from forerun.spaces.trees.document import parse_tree
from forerun.spaces.trees.write import tree_yaml

GPUS = 8


def small(layers: int = 8, **changes: object) -> Context:
    made = request(dense_model(layers=layers), global_batch=32)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def space(context: Context, **choices: tuple[int, ...]) -> StrategySpace:
    return StrategySpace(choices={**default_choices(context, (GPUS,)), **choices}, context=context)


def pipeline(context: Context, pp: int, microbatches: int, **choices: tuple[int, ...]) -> Pipeline:
    made = space(context, **choices)
    cuts = tuple(cuts_of(made, GPUS, pp, microbatches))
    return Pipeline(space=made, cuts=cuts, gpus=GPUS, pp=pp, microbatches=microbatches)


def tree(context: Context, plan: Plan) -> TreeStrategies:
    return legal_tree(context, resolve_tree(plan_tree(context, plan), model_layers(context.model)))


def every_step_s(plans: PlannedStages, transfers_s: np.ndarray) -> Iterator[float]:
    """Yield what a step takes by the closed form, for all ways through a pipeline."""
    pipe = plans.pipeline
    for chosen in itertools.product(range(len(pipe.cuts)), repeat=pipe.pp):
        if sum(devices_of(pipe.cuts[cut]) for cut in chosen) != pipe.gpus:
            continue
        ranges = [
            range(table.fewest, table.fewest + table.time_s.shape[1]) for table in map(plans.tables.__getitem__, chosen)
        ]
        for counts in itertools.product(*ranges):
            if sum(counts) != pipe.layers:
                continue
            starts = [sum(counts[:stage]) for stage in range(pipe.pp)]
            places = [
                (plans.tables[cut], (stage, count - plans.tables[cut].fewest, start))
                for stage, (cut, count, start) in enumerate(zip(chosen, counts, starts, strict=True))
            ]
            moved_s = sum(float(transfers_s[pair]) for pair in itertools.pairwise(chosen))
            yield sum(float(t.time_s[p]) for t, p in places) + moved_s + max(float(t.rest_s[p]) for t, p in places)


@pytest.mark.parametrize(("pp", "microbatches"), [(1, 8), (2, 8), (3, 4), (4, 16)])
def test_the_best_path_is_the_best_of_all(pp: int, microbatches: int) -> None:
    pipe = pipeline(small(6), pp, microbatches, tp=(1, 2))
    transfers_s = transfers_of(pipe, {})
    plans = next(stage_plans([pipe], [transfers_s]))
    paths = best_paths(plans, transfers_s)
    least_s = min(every_step_s(plans, transfers_s))

    assert least_s <= paths[0].seconds * (1 + 1e-9)
    assert paths[0].seconds <= least_s * (1 + STEP)


@pytest.mark.parametrize("memory_bytes", [80e9, 6e9])
def test_plans_are_legal_trees_that_take_as_long_as_planned(memory_bytes: float) -> None:
    cluster = small_cluster()
    device = dataclasses.replace(cluster.device, memory_bytes=memory_bytes)
    context = small(10, cluster=dataclasses.replace(cluster, device=device))
    plans, _ = plans_of(space(context), GPUS, 4)

    assert plans
    for plan in plans:
        strategies = tree(context, plan)
        assert strategies.tree.device_count == GPUS
        played = simulate_tree(context, strategies)
        assert stage_memory(assign_tree(context, strategies)).peak_bytes.max() <= context.memory_limit_bytes
        assert played.scores.step_time_s[0] == pytest.approx(plan.seconds, rel=0.08)
        again = parse_tree(tree_yaml(plan_tree(context, plan)))
        assert legal_tree(context, resolve_tree(again, model_layers(context.model))) == strategies


def test_mixtures_with_dense_layers_first_are_planned() -> None:
    context = small(model=moe_model(layers=5))
    plans, _ = plans_of(space(context, ep=(1, 4)), GPUS, 2, depths=(1, 2))

    assert plans and all(sum(stage.layers for stage in plan.stages) == 5 for plan in plans)
    assert all(simulate_tree(context, tree(context, plan)).scores.step_time_s[0] > 0 for plan in plans)


def test_a_plan_is_a_tree_of_its_stages_with_runs_of_layers_that_differ() -> None:
    context = small(6)
    cuts = {devices_of(cut): cut for cut in cuts_of(space(context), GPUS, 3, 8) if cut.tp == 2}
    stages = (
        PlannedStage(cut=cuts[4], layers=3, recompute=Recompute.FULL, recomputed=2, hosted=1),
        PlannedStage(cut=cuts[2], layers=1, recompute=Recompute.SELECTIVE),
        PlannedStage(cut=cuts[2], layers=2, recompute=Recompute.NONE, hosted=2),
    )
    strategies = tree(context, Plan(microbatches=8, stages=stages, seconds=1.0))

    assert flat_of(context, strategies) is None
    assert [len(stage.devices) for stage in strategies.tree.stages] == [4, 2, 2]
    leaves = list(strategies.tree.leaves)
    assert [int(leaf.recompute) for leaf in leaves] == [0, 2, 2, 0, 1, 0, 0, 0]
    assert [sorted(leaf.host) for leaf in leaves] == [[], ["optimizer"], [], [], [], *[["optimizer"]] * 3]


def test_stages_begin_where_they_fit_into_a_node() -> None:
    context = small(8, cluster=dataclasses.replace(small_cluster(), devices_per_node=4))
    plans, _ = plans_of(space(context), GPUS, 20, depths=(3,))
    for plan in plans:
        first = 0
        for stage in plan.stages:
            last = first + devices_of(stage.cut) - 1
            assert first // 4 == last // 4 or first % 4 == 0
            first = last + 1


COMMAND = [
    *("search", "llama3-8b", "--cluster", "dgx-a100-40", "--gpus", "8", "--global-batch", "64", "--seq-len", "8192"),
    *("--set", "cp=1", "--set", "tp=1,2", "--set", "mbs=1", "--set", "zero=1", "--set", "vpp=1", "--top", "4"),
]


@pytest.mark.slow  # some seconds
def test_a_plan_betters_flat_strategies_where_memory_is_short(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    assert main([*COMMAND, "--per-stage", "devices", "--json", "--out", str(folder)]) == 0
    board = json.loads(capsys.readouterr().out)
    best = board["trees"]["rows"][0]

    assert best["step_time_s"] < min(row["step_time_s"] for row in board["leaderboard"])
    assert best["gain"] > 0.01
    assert any(mark.startswith("no launch file") for mark in best["marks"])
    file = folder / "trees" / "1.yaml"
    assert main(["simulate", *COMMAND[1:10], "--tree", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-9)


def test_long_sequences_are_shared_where_replicas_have_too_few() -> None:
    """Two sequences on eight devices, with at most two tensor ranks: the others are context ranks, costed as the event
    engine does; sequences that are short are cut by none."""
    long = request(dense_model(layers=8), global_batch=8, seq_len=32768)
    plans, _ = plans_of(space(long, tp=(1, 2), pp=(2,)), GPUS, 4, depths=(2,))
    cuts = [stage.cut for plan in plans for stage in plan.stages]

    assert cuts and max(cut.cp for cut in cuts) > 1
    for plan in plans:
        events_s = float(simulate_tree(long, tree(long, plan)).scores.step_time_s[0])
        assert plan.seconds == pytest.approx(events_s, rel=0.06)
    assert {cut.cp for cut in cuts_of(space(small(), cp=(1, 2)), GPUS, 2, 4)} == {1}
