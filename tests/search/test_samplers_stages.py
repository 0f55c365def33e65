"""Spaces of stages that differ: counted and enumerated exactly; the sampler made for them finds their best."""

import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries
from random_sampler import RandomSampler

from forerun.search.answer.searches import explore_request, search_request
from forerun.search.cli import main
from forerun.search.explore.flat.exhaustive import Problem
from forerun.search.explore.samplers import Exploring, StopConditions, explore, sampler_named
from forerun.search.explore.samplers.degree_classes import degree_classes
from forerun.search.explore.samplers.local_sampler import LocalSampler
from forerun.search.explore.samplers.moves import Moves
from forerun.search.explore.samplers.planner import Planner
from forerun.search.explore.samplers.registry import PER_STAGE
from forerun.search.explore.samplers.warm_starts import flat_starts
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, legal_strategy
from forerun.search.workers import Choice
from forerun.simulator import score
from forerun.simulator.events import event_scores
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Schedule, Strategy, table_of
from forerun.spaces.strategies.stage_laws import broken_laws
from forerun.spaces.strategies.staged_size import layouts_of
from forerun.spaces.strategies.staged_space import StagedSpace

SERIAL = Choice(kind="serial")
WHOLE = StopConditions(evaluations=1 << 40, asked=1 << 40, stagnation=None)
RELAXED = settings(max_examples=tries(40), suppress_health_check=[HealthCheck.function_scoped_fixture])

REDUCED: dict[str, tuple[dict[str, Any], dict[str, list[object]], float]] = {
    # request; axes; what stages that differ gain over the best flat strategy, in per cent at least
    "recompute": (
        {"framework": "nanotron", "seq_len": 8192},
        {"pp": [4], "tp": [2, 4, 8], "mbs": [1], "zero": [1]},
        5.0,
    ),
    "layers and recompute": (
        {"framework": "torchtitan", "seq_len": 16384},
        {"pp": [4], "tp": [2, 4], "mbs": [1], "zero": [2], "schedule": ["1f1b"]},
        3.5,
    ),
    "halves": (
        {"framework": "megatron-lm", "seq_len": 6144, "global_batch": 1024},
        {"pp": [8], "tp": [1, 2], "cp": [4], "mbs": [1, 2], "zero": [1], "recompute": ["none"], "split": ["even"]},
        5.0,
    ),
    "nothing": (
        {"framework": "torchtitan", "seq_len": 8192, "cluster": "dgx-a100-40"},
        {"pp": [4], "tp": [4, 8], "mbs": [1], "zero": [2], "schedule": ["1f1b"], "split": ["even"]},
        0.0,
    ),
}
"""Llama 3 70B on 128 GPUs, boundaries within one layer: few enough to look at all."""


OFTEN_FULL = {"fragmentation": 0.1, "logit_bytes": 12.0, "bucket_gradient_bytes": 0.0, "pipeline_rank_s": 2.8e-3}
"""A profile under which some stages have to recompute and others need not."""


def reduced(name: str) -> StagedSpace:
    fields, axes, _ = REDUCED[name]
    # With hidden tensor-parallel communication all halves want the same tp.
    switches = {"tp-comm-overlap": "off"} if name == "halves" else {}
    known = {"cluster": "dgx-h100", "gpus": "128", "global_batch": 256, "switches": switches}
    overrides = {"vpp": [1], "cp": [1], "placement": [0], "sp": [1], "recompute_layers": [0], **axes}
    setting = resolve(Request(model="llama3-70b", overrides=overrides, **{**known, **fields}))
    flat = setting.space()
    if name == "recompute":
        profile = dataclasses.replace(flat.context.framework, **OFTEN_FULL)
        flat = dataclasses.replace(flat, context=dataclasses.replace(flat.context, framework=profile))
    return StagedSpace(flat=flat, reach=1, recompute=True, halves=True)


@pytest.mark.slow  # looks at every candidate of four spaces
@pytest.mark.parametrize("name", REDUCED)
def test_the_best_of_a_reduced_space_is_found_with_every_seed(name: str) -> None:
    space, gain = reduced(name), REDUCED[name][2]
    whole = explore(space, sampler_named(Exploring(sampler="exhaustive"), space)[0], limits=WHOLE)
    best = whole.curve[-1][1]
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=5), SERIAL)
    assert starts.piece.best is not None
    flat = float(starts.piece.best.keys[0][0])
    assert flat / best - 1 >= gain / 100
    assert whole.scored > 2000
    assert name != "halves" or whole.feasible[0].second_tp is not None

    for seed in range(tries(20)):
        sampler = sampler_named(Exploring(sampler="local", seed=seed), space)[0]
        found = explore(space, sampler, starts=starts.strategies, limits=StopConditions(evaluations=96))
        assert found.curve[-1][1] <= best / 0.98
        assert found.curve[-1][1] < flat or best == flat


@pytest.mark.parametrize("free", [{"halves": True}, {"recompute": True}, {"reach": 2}])
def test_each_freedom_alone_is_planned(free: dict[str, Any]) -> None:
    alike = dataclasses.replace(reduced("recompute" if "recompute" in free else "halves"), reach=0, recompute=False)
    space = dataclasses.replace(alike, **{"halves": False, **free})
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=5), SERIAL).strategies
    found = explore(space, LocalSampler(), starts=starts, limits=StopConditions(evaluations=40))
    flat = explore(alike, LocalSampler(), starts=starts, limits=StopConditions(evaluations=len(starts)))

    assert found.curve[-1][1] < flat.curve[-1][1]
    assert len(found.feasible) > 1


def crowded(**fields: Any) -> StagedSpace:
    """Return a space of GPT-3 13B on 16 V100 in which no stage has room for all that it keeps."""
    overrides = {"pp": [2], "tp": [4], "vpp": [1], "cp": [1], "mbs": [1], "placement": [0], "sp": [0], "zero": [1]}
    overrides |= {"recompute": ["none"], "split": ["even"], "schedule": ["1f1b"]}
    setting = resolve(
        Request(
            **{"model": "gpt3-13b", "cluster": "dgx1-v100-16", "gpus": "16", "global_batch": 64, "seq_len": 2048},
            precision="fp16",
            overrides=overrides,
        )
    )
    return StagedSpace(**{"flat": setting.space(), "reach": 0, "offload": True, **fields})


@pytest.mark.slow  # looks at all 6,561 ways to keep shares on the host
def test_shares_on_the_host_are_planned_as_well_as_enumerated() -> None:
    space = crowded()
    whole = explore(space, sampler_named(Exploring(sampler="exhaustive"), space)[0], limits=WHOLE)
    plain = space.canonical(dataclasses.replace(whole.feasible[0], stage_offload=None))
    assert len(whole.known) == 9**4 <= space.size
    assert plain in whole.known and plain not in whole.feasible

    found = explore(space, LocalSampler(), limits=StopConditions(evaluations=150))

    assert found.curve[-1][1] <= whole.curve[-1][1] * 1.001


def test_a_plan_keeps_no_more_on_the_host_than_it_must() -> None:
    """The plan of a class of degrees fits, and an eighth less on the host at any stage does not, or hides anyway."""
    space = crowded(reach=2)
    (degree_class, *_) = degree_classes(space)
    (plan, *_) = Planner(space).plans(degree_class.strategy)
    entries = plan.strategy.stage_offload
    scores = score(space.context, table_of([plan.strategy]))

    assert entries is not None and scores.fits[0]
    fewer = [
        dataclasses.replace(plan.strategy, stage_offload=(*entries[:stage], less, *entries[stage + 1 :]))
        for stage, entry in enumerate(entries)
        for less in ([entry._replace(optimizer=entry.optimizer - 1 / 8)] if entry.optimizer else [])
    ]
    assert fewer and not score(space.context, table_of(fewer)).fits.any()


def test_what_fits_stays_on_the_device(make_setting: Callable[..., Setting]) -> None:
    axes = {"mbs": [1], "pp": [2], "tp": [8], "recompute": ["none"]}
    space = StagedSpace(flat=make_setting(gpus="16", overrides=axes).space(), reach=1, offload=True)
    found, alone = (
        [plan.strategy for each in degree_classes(one) for plan in Planner(one).plans(each.strategy)]
        for one in (space, dataclasses.replace(space, offload=False))
    )

    assert found == alone != []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recompute", "halves"])
def test_the_whole_space_is_walked_once_and_counted(name: str) -> None:
    space = reduced(name)
    enumerated = list(space.walk())

    assert len(enumerated) == len(set(enumerated)) <= space.size
    assert all(space.canonical(strategy) == strategy for strategy in enumerated[::50])
    assert all(broken_laws(strategy, space.context) == [] for strategy in enumerated[::50])


def test_ways_to_deal_and_recompute_are_counted_exactly(make_setting: Callable[..., Setting]) -> None:
    space = StagedSpace(flat=make_setting().space(), reach=1, recompute=True)  # 32 layers, full:n offered
    dealt = [
        (a, b - a, 32 - b) for a, b in itertools.product(range(9, 12), range(20, 23)) if 0 < a < b < 32
    ]  # boundaries at 10 and 21

    assert space.partial
    assert layouts_of(space, 3, recompute=True) == sum(
        int(np.prod([3 + held - 1 for held in stages])) for stages in dealt
    )
    flat = dataclasses.replace(space, recompute=False)
    assert layouts_of(flat, 3) == len(dealt) and flat.size < space.size < dataclasses.replace(space, halves=True).size


@RELAXED
@given(seed=st.integers(0, 10_000))
def test_what_is_built_can_be_named_and_built_again(make_setting: Callable[..., Setting], seed: int) -> None:
    space = StagedSpace(flat=make_setting().space(), recompute=True, halves=True)
    random = np.random.default_rng(seed)
    built = [space.build(lambda name, choices: choices[int(random.integers(len(choices)))]) for _ in range(20)]
    asked: dict[str, object] = {}

    for strategy in filter(None, built):
        answers = space.answers(strategy)

        def choose(name: str, choices: Any, answers: dict[str, int] = answers) -> int:
            assert asked.setdefault(name, choices) == choices  # Optuna needs choices that never change
            return answers[name]

        assert space.build(choose) == strategy == space.canonical(strategy)


def test_steps_lead_to_names_of_the_space(make_setting: Callable[..., Setting]) -> None:
    setting = make_setting(gpus="16")
    space = StagedSpace(flat=setting.space(), recompute=True, halves=True)
    strategy = legal_strategy(setting, "tp1/2 pp4 dp4 mbs1/2 zero1 layers=7,8,9,8 recompute=full,none,full:3,none")
    moves = Moves(space)
    steps = {
        "shifts": list(moves.shifts(strategy, 0)),
        "recomputes": list(moves.recomputes(strategy, 0)),
        "turns": list(moves.turns(strategy)),
    }

    for found in steps.values():
        assert found and strategy not in found
        assert all(space.canonical(each) == each and each.devices == 16 for each in found)
    first = steps["recomputes"][0].stage_recompute or ()
    assert first[0] != (strategy.stage_recompute or ())[0]  # the fullest stage comes first
    assert {each.second_tp for each in steps["turns"]} >= {None, 4}
    assert {str(each.stage_recompute[2]) for each in steps["recomputes"] if each.stage_recompute} >= {
        "full:2",
        "full:4",
    }


@pytest.mark.slow
def test_plans_are_the_best_of_their_family() -> None:
    """The first plan is what enumeration finds for ``(m - 1) max t + sum t`` over all ways to fill four stages."""
    space = reduced("recompute")
    planner = Planner(space)
    alone = [each for each in degree_classes(space) if each.strategy.second_tp is None]
    degree_class, plans = next((each, plans) for each in alone if (plans := planner.plans(each.strategy)))
    base = dataclasses.replace(degree_class.strategy, stage_recompute=None)
    alike = {
        dataclasses.replace(s, layers_per_stage=None, stage_recompute=None, split=base.split, recompute=base.recompute)
        for s in (plan.strategy for plan in plans)
    }
    same = [s for s in space.walk() if s.second_tp is None and (s.tp, s.dp) == (base.tp, base.dp)]
    scores = score(space.context, table_of(same))

    assert alike == {base}
    assert [plan.pipeline_s for plan in plans] == sorted(plan.pipeline_s for plan in plans)
    best = score(space.context, table_of([plan.strategy for plan in plans]))
    assert best.fits.all()
    assert best.step_time_s.min() <= scores.step_time_s[scores.fits].min() * 1.002


def test_families_come_by_their_bound_and_no_plan_beats_it() -> None:
    space = reduced("layers and recompute")
    found = degree_classes(space)
    planner = Planner(space)

    assert [degree_class.least_s for degree_class in found] == sorted(degree_class.least_s for degree_class in found)
    for degree_class in found[:40]:
        for plan in planner.plans(degree_class.strategy):
            assert plan.pipeline_s + degree_class.each_p2p_s >= degree_class.least_s * (1 - 1e-9)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_plans_count_the_traffic_of_replicas(zero: int) -> None:
    """On slow links a plan promises about what its strategy is scored at, whatever is sharded."""
    axes = {"pp": [2], "tp": [1], "mbs": [1], "zero": [zero], "cp": [1], "placement": [0], "recompute": ["full"]}
    named = {"model": "llama3-8b", "cluster": "l40s-pcie", "gpus": "16", "global_batch": 64, "seq_len": 2048}
    flat = resolve(Request(**named, framework="generic", overrides=axes)).space()
    planner = Planner(StagedSpace(flat=flat, reach=2, offload=True))
    (found,) = [each for each in degree_classes(planner.space) if each.strategy.schedule == Schedule.ONE_F_ONE_B]
    (plan, *_) = planner.plans(found.strategy)
    scored_s = float(score(flat.context, table_of([plan.strategy])).step_time_s[0])

    assert plan.pipeline_s + found.each_p2p_s == pytest.approx(scored_s, rel=0.15)


@pytest.mark.slow  # walks the flat space, and plans 400 families
def test_the_large_space_in_a_minute() -> None:
    """Llama 3 70B on 64 GPUs of 40 GB: better than every flat strategy, and the event engine agrees."""
    setting = resolve(Request(model="llama3-70b", cluster="dgx-a100-40", gpus="64", global_batch=512, seq_len=8192))
    space = Exploring(per_stage=PER_STAGE).space(setting.space())
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=5), SERIAL)
    sampler, why = sampler_named(Exploring(), space)
    found = explore(space, sampler, starts=starts.strategies, limits=StopConditions(evaluations=200))
    best = [starts.strategies[0], found.feasible[0]]
    closed, events = (each(space.context, table_of(best)).step_time_s for each in (score, event_scores))

    assert space.size > 10**15 and sampler.name == "local" and "stages can be planned" in why
    assert closed[1] < 0.95 * closed[0] and events[1] < 0.95 * events[0]


@pytest.mark.slow
def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = "search llama3-70b --cluster dgx-h100 --gpus 8 --global-batch 64 --seq-len 4096".split()

    assert main([*command, "--per-stage", "layers,recompute,tp", "--evaluations", "50"]) == 3
    assert main([*command, "--per-stage", "layer"]) == 2
    assert main([*command, "--per-stage", ","]) == 2
    assert main([*command, "--framework", "torchtitan", "--per-stage", "offload"]) == 2
    assert main([*command, "--evaluations", "5"]) == 2
    err = capsys.readouterr().err
    assert "nothing is feasible" in err.lower() or "does not fit" in err or "memory" in err
    assert "unknown choice per stage 'layer'; did you mean layers" in err
    assert "--per-stage needs one of layers, recompute, tp" in err
    assert "--evaluations is for samplers" in err
    assert "stages cannot keep tensors on the host: torchtitan has no switch optimizer-offload" in err

    assert main([*command[:1], "llama3-8b", *command[2:], "--sampler", "auto", "--set", "mbs=1", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert any(note.startswith("sampler exhaustive (all of ") for note in document["request"]["notes"])


def test_strategies_with_stages_are_ranked_like_others(make_setting: Callable[..., Setting]) -> None:
    """Nothing of a strategy is lost on its way through rows: their text is parsed again by every later step."""
    from forerun.search.board.rows import rows_of

    setting = make_setting(gpus="16")
    text = "tp1/2 pp4 dp4/2 mbs1/2 zero1 layers=7,8,9,8 recompute=full,none,full:3,none"
    strategy: Strategy = legal_strategy(setting, text)
    (row,) = rows_of(setting.context, [strategy])

    assert row.strategy == strategy
    assert row.step_time_s == pytest.approx(sum(row.breakdown_s.values()))


@pytest.mark.slow
def test_the_best_so_far_is_on_disk_at_any_moment(tmp_path: Path, make_setting: Callable[..., Setting]) -> None:
    from forerun.search.explore.samplers.best_file import BestFile
    from forerun.search.explore.samplers.driver import evaluate

    setting = make_setting(gpus="16", overrides={"mbs": [1]})
    space = Exploring(per_stage=PER_STAGE).space(setting.space())
    file = BestFile(tmp_path / "best.json", setting, "local")
    written: list[dict[str, Any]] = []

    def improved(strategy: Strategy, evaluation: Any, scored: int) -> None:
        file.improved(strategy, evaluation, scored)
        written.append(json.loads(file.path.read_text()))

    sampler = RandomSampler(1)
    found = explore(space, sampler, limits=StopConditions(evaluations=300, asked=3000), improved=improved)

    assert len(written) > 1
    values = [value for _, value in found.curve]
    assert values == sorted(values, reverse=True)
    assert written[-1]["strategy"] == str(found.feasible[0]) and written[-1]["step_time_s"] <= values[-1]
    assert list(tmp_path.iterdir()) == [file.path]  # no half-written file is left
    gone = BestFile(tmp_path / "nowhere" / "best.json", setting, "local")
    with pytest.raises(RequestError, match=r"cannot write .*best\.json"):
        gone.improved(found.feasible[0], evaluate(space, found.feasible[:1])[0], 1)


@pytest.mark.slow
def test_later_keys_of_an_objective_count(make_setting: Callable[..., Setting]) -> None:
    """Fewest GPUs, then fastest: a faster strategy on as many is better."""
    setting = make_setting(gpus="16", overrides={"mbs": [1], "pp": [2, 4]})
    space = Exploring(per_stage=PER_STAGE).space(setting.space())
    sampler = RandomSampler()
    limits = StopConditions(evaluations=200, asked=2000)
    found = explore(space, sampler, objective="gpus", limits=limits)

    assert {value for _, value in found.curve} == {16.0} and len(found.curve) > 1


@pytest.mark.slow
def test_the_rows_are_not_behind_those_of_the_flat_search() -> None:
    """What a search of stages shows beside its best is no slower, row by row, than what the flat search shows."""
    request = Request(model="gpt3-13b", cluster="l40s-pcie", gpus="32", global_batch=64, seq_len=2048, top=6)
    flat = search_request(request)
    staged = explore_request(request, exploring=Exploring(per_stage=("layers",), evaluations=300))
    assert len(staged.rows) == len(flat.rows)
    assert len({str(row.strategy) for row in staged.rows}) == len(staged.rows)
    for there, here in zip(
        sorted(row.step_time_s for row in flat.rows), sorted(row.step_time_s for row in staged.rows), strict=True
    ):
        assert here <= 1.01 * there
