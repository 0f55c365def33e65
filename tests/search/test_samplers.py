"""Every sampler keeps the contract, and the one that knows the problem finds what enumeration finds."""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from profiles import tries
from random_sampler import RandomSampler

from forerun.search.answer.searches import explore_request
from forerun.search.cli import main
from forerun.search.explore.flat.exhaustive import Problem
from forerun.search.explore.samplers import (
    Evaluation,
    Exploration,
    Exploring,
    Sampler,
    StopConditions,
    explore,
    sampler_named,
)
from forerun.search.explore.samplers.driver import evaluate
from forerun.search.explore.samplers.stored_sampler import StoredSampler, study_name
from forerun.search.explore.samplers.warm_starts import flat_starts
from forerun.search.files.studies import open_storage
from forerun.search.order.ideas import degrees
from forerun.search.request.request import Request
from forerun.search.request.setting import Setting
from forerun.search.workers import Choice
from forerun.simulator import ScoreTable, score
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy, StrategyTable, parse_strategy
from forerun.spaces.strategies.staged_space import StagedSpace
from forerun.spaces.units import format_whole

NAMES = ["exhaustive", "random", "local", "stored"]
SMALL: dict[str, list[object]] = {
    "pp": [1, 4],
    "tp": [1, 2],
    "cp": [1],
    "vpp": [1],
    "mbs": [1, 2],
    "recompute": ["none", "full"],
    "recompute_layers": [0],
    "placement": [0],
}
SERIAL = Choice(kind="serial")


@pytest.fixture
def space(make_setting: Callable[..., Setting]) -> StagedSpace:
    """The layers of Llama 3 8B on four stages of 16 GPUs with little memory, boundaries within two layers."""
    setting = make_setting(cluster="dgx-a100-40", gpus="16", seq_len=4096, overrides=SMALL)
    return StagedSpace(flat=setting.space(), reach=2)


def run(space: StagedSpace, name: str, seed: int = 0, **options: Any) -> Exploration:
    return explore(space, sampler_of(name, space, seed), **options)


def sampler_of(name: str, space: StagedSpace, seed: int = 0) -> Sampler:
    if name == "random":
        return RandomSampler(seed)
    if name == "stored":
        pytest.importorskip("optuna")
        storage = str(Path(tempfile.mkdtemp()) / "study.log")
        return sampler_named(Exploring(sampler="local", seed=seed, storage=storage), space)[0]
    return sampler_named(Exploring(sampler=name, seed=seed), space)[0]


class Watched(Sampler):
    """Passes everything on and keeps a log of the calls."""

    def __init__(self, inner: Sampler) -> None:
        self.inner, self.name, self.log = inner, inner.name, list[str]()
        self.asked: list[list[Strategy | None]] = []
        self.told: list[list[Evaluation | None]] = []

    def begin(self, space: StagedSpace, starts: Sequence[Strategy]) -> None:
        self.log.append("begin")
        self.inner.begin(space, starts)

    def ask(self, count: int) -> list[Strategy | None]:
        self.log.append("ask")
        batch = self.inner.ask(count)
        assert len(batch) <= count
        self.asked.append(batch)
        return batch

    def tell(self, strategies: Sequence[Strategy | None], evaluations: Sequence[Evaluation | None]) -> None:
        self.log.append("tell")
        assert list(strategies) == self.asked[-1]
        self.told.append(list(evaluations))
        self.inner.tell(strategies, evaluations)

    def close(self) -> None:
        self.log.append("close")
        self.inner.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_contract(space: StagedSpace, name: str) -> None:
    scored: list[Strategy] = []

    def counting(context: Context, table: StrategyTable) -> ScoreTable:
        scored.extend(table.strategy(row) for row in range(len(table)))
        return score(context, table)

    watched = Watched(sampler_of(name, space))
    limits = StopConditions(evaluations=80, asked=120)
    found = explore(space, watched, limits=limits, score=counting)

    assert watched.log[0] == "begin" and watched.log[-1] == "close"
    assert "".join({"ask": "a", "tell": "t"}.get(call, "") for call in watched.log).rstrip("a").replace("at", "") == ""
    for batch, told in zip(watched.asked, watched.told, strict=False):
        assert len(batch) == len(told)
        assert [found.known.get(s) if s else None for s in batch] == told
    assert len(scored) == len(set(scored)) == found.scored <= 80 + 128
    assert all(space.canonical(strategy) == strategy for strategy in scored)
    assert space.legal(scored).all()
    legal = {strategy for strategy, evaluation in found.known.items() if evaluation is not None}
    assert legal == set(scored)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(space: StagedSpace, name: str) -> None:
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=5), SERIAL).strategies
    limits = StopConditions(evaluations=60, asked=100)
    one, two = (run(space, name, 3, starts=starts, limits=limits) for _ in range(2))

    assert one.known == two.known
    assert list(one.known) == list(two.known)


@pytest.mark.parametrize("name", ["random", "local", "stored"])
def test_starts_are_looked_at_first(space: StagedSpace, name: str) -> None:
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=5), SERIAL).strategies
    found = run(space, name, starts=starts, limits=StopConditions(evaluations=48, asked=48))

    assert len(starts) > 5
    assert list(found.known)[: len(starts)] == list(starts)


@pytest.mark.slow  # every sampler with many seeds
def test_the_best_of_a_reduced_space_is_found_with_every_seed(space: StagedSpace) -> None:
    whole = run(space, "exhaustive", limits=StopConditions(evaluations=1 << 40, asked=1 << 40, stagnation=None))
    best = whole.known[whole.feasible[0]]
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=5), SERIAL).strategies
    flat = min(e.value for s, e in whole.known.items() if e and e.fits and s.layers_per_stage is None)
    assert best is not None
    assert best.value < 0.995 * flat  # uneven stages do help here, else the test says nothing

    for seed in range(tries(20)):
        found = run(space, "local", seed, starts=starts, limits=StopConditions(evaluations=whole.scored // 10))
        assert found.curve[-1][1] <= best.value / 0.99
        assert found.scored <= whole.scored // 10 + 128


@pytest.mark.slow  # databases
@pytest.mark.parametrize("address", ["study.log", "sqlite:///{}/study.db"])
def test_storages_tell_what_was_found(space: StagedSpace, tmp_path: Path, address: str) -> None:
    """A dashboard reads strategies and values; another space in the same storage is another study."""
    optuna = pytest.importorskip("optuna")
    text = address.format(tmp_path) if "://" in address else str(tmp_path / address)
    other = StagedSpace(flat=space.flat, reach=1)
    for each in (space, other):
        sampler = sampler_named(Exploring(sampler="local", storage=text), each)[0]
        found = explore(each, sampler, limits=StopConditions(evaluations=40, asked=40))
        study = optuna.load_study(study_name=study_name(each), storage=open_storage(text))
        assert study.user_attrs["model"] == each.context.model.name and study.trials
        for trial in study.trials:
            strategy = parse_strategy(trial.user_attrs["strategy"])
            evaluation = found.known[strategy]
            assert evaluation is not None and trial.state.name == "COMPLETE"
            assert trial.values == [evaluation.value]
            assert (trial.constraints["memory"] <= 0) == evaluation.fits
            assert trial.params["pp"] == strategy.pp and trial.params["tp"] == strategy.tp
            assert trial.params.get("recompute", "none") in ("none", "full")
            assert trial.user_attrs["predicted_tokens_per_s"] > 0 and trial.user_attrs["predicted_peak_gib"] > 0
    assert study_name(space) != study_name(other)


def test_a_storage_that_fails_later_is_said(space: StagedSpace, tmp_path: Path) -> None:
    sampler = sampler_named(Exploring(sampler="local", storage=str(tmp_path / "study.log")), space)[0]
    assert isinstance(sampler, StoredSampler)
    starts = flat_starts(Problem(space=space.flat, objective="throughput", top=5), SERIAL).strategies[:2]
    sampler.begin(space, starts)
    strategies = sampler.ask(2)
    assert strategies == list(starts)

    def refuse(trial: object) -> None:
        raise OSError(28, "No space left on device")

    sampler._study.add_trial = refuse
    with pytest.raises(RequestError, match=r"the storage of the study fails: OSError: .*No space left"):
        sampler.tell(strategies, evaluate(space, starts))


def test_a_stored_study_is_continued(space: StagedSpace, tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    exploring = Exploring(sampler="local", storage=str(tmp_path / "study.log"))
    first, second = (
        explore(space, sampler_named(exploring, space)[0], limits=StopConditions(evaluations=20, asked=20))
        for _ in range(2)
    )
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log")))

    trials = optuna.load_study(study_name=study_name(space), storage=storage).trials
    legal = [one for found in (first, second) for one, result in found.known.items() if result is not None]
    assert len(legal) - len(first.known) <= len(trials) <= len(legal) + 40
    assert first.feasible[0] in second.known and second.curve[-1][1] <= first.curve[-1][1]
    scored = {str(strategy) for strategy, result in first.known.items() if result is not None}
    assert scored <= {trial.user_attrs["strategy"] for trial in trials}


@pytest.mark.parametrize(
    "values,law",
    [
        ("[1.0]", None),
        ('["a"]', r"trial 0 of the storage has the values \['a'\]"),
        ("[NaN]", "a trial has one finite number"),
        ("[1.0,2.0]", r"\[1.0, 2.0\]"),
    ],
)
def test_the_values_of_a_journal_are_looked_at(
    space: StagedSpace, tmp_path: Path, values: str, law: str | None
) -> None:
    pytest.importorskip("optuna")
    path = tmp_path / "study.log"
    exploring = Exploring(sampler="local", storage=str(path))
    sampler_named(exploring, space)[0].begin(space, ())
    begun = '{"op_code":4,"worker_id":"w","study_id":0,"datetime_start":"2026-01-01T00:00:00.000000"'
    told = f'"state":1,"value":null,"values":{values},"distributions":{{}},"params":{{}},"user_attrs":{{}}'
    end = '"datetime_complete":"2026-01-01T00:00:01.000000","system_attrs":{},"intermediate_values":{}}'
    path.write_text(f"{path.read_text()}{begun},{told},{end}\n")
    sampler = sampler_named(exploring, space)[0]
    if law is None:
        sampler.begin(space, ())
        assert sampler.earlier() == []
    else:
        with pytest.raises(RequestError, match=law):
            sampler.begin(space, ())


@pytest.mark.parametrize(
    "fields,law",
    [
        ({"sampler": "locall"}, "unknown sampler 'locall'; did you mean local"),
        ({"sampler": "local", "storage": "/nowhere/study.log"}, "cannot be opened: FileNotFoundError"),
        ({"sampler": "local", "storage": "sqlite:////nowhere/study.db"}, "cannot be opened"),
        ({"sampler": "local", "storage": "/dev/null"}, "is not a regular file"),
    ],
)
def test_what_cannot_be_is_said(space: StagedSpace, fields: dict[str, Any], law: str) -> None:
    with pytest.raises(RequestError, match=law):
        sampler_named(Exploring(**fields), space)


def test_auto_says_why(space: StagedSpace, make_setting: Callable[..., Setting]) -> None:
    large = StagedSpace(flat=make_setting(model="llama3-70b", gpus="128", global_batch=1024).space())
    chosen = [sampler_named(Exploring(), each) for each in (space, large)]

    assert large.size > 10**15
    assert [(sampler.name, why) for sampler, why in chosen] == [
        ("exhaustive", f"{format_whole(space.size)} candidates can all be looked at"),
        (
            "local",
            f"{format_whole(large.size)} candidates are too many to enumerate, and stages can be planned one by one",
        ),
    ]
    with pytest.raises(RequestError, match="too many to enumerate"):
        sampler_named(Exploring(sampler="exhaustive"), large)


@pytest.mark.slow
def test_a_request_is_never_answered_worse_than_by_the_flat_search() -> None:
    from forerun.search.answer.searches import search_request

    request = Request(
        model="llama3-8b", cluster="dgx-a100-40", gpus="16", global_batch=64, seq_len=4096, overrides=SMALL, top=3
    )
    flat = search_request(request)
    found = explore_request(request, exploring=Exploring(sampler="local", evaluations=600))

    assert found.rows[0].step_time_s < flat.rows[0].step_time_s
    assert any("uneven stages gain" in note for note in found.notes)
    assert found.space.feasible + sum(found.space.rejected.values()) == found.space.size
    assert [row.rank for row in found.rows] == [1, 2, 3]
    assert len({degrees(row.strategy) for row in found.rows}) > 1 and any(row.variants for row in found.rows)


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    command = (
        "search llama3-8b --cluster dgx-h100 --gpus 16 --global-batch 64 --seq-len 4096 --set mbs=1 --json".split()
    )
    assert main([*command, "--per-stage", "layers", "--evaluations", "100", "--seed", "3"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main([*command, "--evaluations", "100"]) == 2

    assert document["request"]["sampler"] == "local"
    assert any(note.startswith("sampler local (") for note in document["request"]["notes"])
    assert "--evaluations is for samplers" in capsys.readouterr().err
