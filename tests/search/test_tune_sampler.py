"""The chooser in a study of a user's own."""

from collections.abc import Callable
from pathlib import Path

import optuna
import pytest

from forerun.search.tune import Candidate, Chooser, RunOutcome
from forerun.search.tune.sampler import ForerunSampler
from forerun.spaces.errors import RequestError

TIMES = {
    "tp1 dp8 mbs1 zero1": (1.00, 1.31),
    "tp2 dp4 mbs1 zero1 sp": (1.04, 1.10),
    "tp2 dp4 mbs2 zero1 sp": (1.02, 1.05),
    "tp2 pp2 dp2 mbs1 recompute=full": (1.10, 1.02),
    "tp4 dp2 mbs1 zero1 sp recompute=full": (1.30, 1.40),
}
"""Predicted and measured seconds by strategy."""


@pytest.fixture(autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def rows() -> list[Candidate]:
    return [Candidate(key=text, strategy=text, step_s=times[0]) for text, times in TIMES.items()]


def measured(sampler: ForerunSampler) -> Callable[[optuna.Trial], float]:
    return lambda trial: TIMES[sampler.suggest(trial).strategy][1]


def test_a_study_in_five_lines_runs_what_the_chooser_does() -> None:
    sampler = ForerunSampler(rows())
    study = optuna.create_study(sampler=sampler)
    study.optimize(measured(sampler), n_trials=len(TIMES))

    chooser, outcomes = Chooser(rows()), list[RunOutcome]()
    for trial in study.trials:
        choice = chooser.next_run(outcomes)
        assert choice is not None
        assert trial.user_attrs["strategy"] == choice.candidate.key
        outcomes.append(RunOutcome(key=choice.candidate.key, status="ok", step_s=TIMES[choice.candidate.key][1]))
    assert study.best_value == 1.02


def test_parameters_are_axes_in_the_words_of_the_field() -> None:
    sampler = ForerunSampler(rows())
    study = optuna.create_study(sampler=sampler)
    study.optimize(measured(sampler), n_trials=1)
    assert sampler.choices["tp"] == (1, 2, 4)
    assert sampler.choices["zero"] == (1, 0)
    assert study.trials[0].params == {
        "tp": 1, "dp": 8, "mbs": 1, "zero": 1, "sp": "off", "pp": 1, "recompute": "none"
    }  # fmt: skip


def test_an_axis_that_a_strategy_leaves_out_has_its_usual_choice() -> None:
    texts = ("pp2 mbs1 split=9/7", "pp2 mbs2 schedule=zb-h1", "pp2 mbs4 recompute=full sp")
    choices = ForerunSampler([Candidate(key=text, strategy=text, step_s=1.0) for text in texts]).choices
    assert choices["split"] == ("9/7", "even")
    assert choices["schedule"] == ("1f1b", "zb-h1")
    assert choices["recompute"] == ("none", "full")
    assert choices["sp"] == ("off", "on")


def test_parameters_that_the_user_declares_otherwise_take_the_values_of_the_strategy() -> None:
    sampler = ForerunSampler(rows())
    study = optuna.create_study(sampler=sampler)
    trial = study.ask()
    assert trial.suggest_int("tp", 1, 8) == 1
    assert trial.suggest_categorical("recompute", ["full", "selective", "none"]) == "none"
    assert trial.suggest_categorical("dp", [1, 2]) in (1, 2)
    assert 0.0 <= trial.suggest_float("lr", 0.0, 1.0) <= 1.0


@pytest.mark.slow
def test_a_study_goes_on_from_its_storage(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'study.db'}"
    for _ in range(3):
        sampler = ForerunSampler(rows())
        study = optuna.create_study(sampler=sampler, storage=storage, study_name="night", load_if_exists=True)
        study.optimize(measured(sampler), n_trials=1)
    assert len({trial.user_attrs["strategy"] for trial in study.trials}) == 3


def test_running_trials_are_not_run_twice() -> None:
    study = optuna.create_study(sampler=ForerunSampler(rows()))
    for _ in TIMES:
        study.ask()
    assert sorted(trial.user_attrs["strategy"] for trial in study.trials) == sorted(TIMES)


def test_failed_pruned_and_out_of_memory_trials_count() -> None:
    sampler = ForerunSampler(rows())
    study = optuna.create_study(sampler=sampler)
    first, second, third = (study.ask() for _ in range(3))
    first.set_user_attr("outcome", "oom")
    study.tell(first, state=optuna.trial.TrialState.FAIL)
    second.report(1.9, 1)
    study.tell(second, state=optuna.trial.TrialState.PRUNED)
    study.tell(third, 1.0)
    outcomes = {one.key: one for one in sampler._outcomes(study, -1)}
    keys = [trial.user_attrs["strategy"] for trial in study.trials]
    assert [outcomes[key].status for key in keys] == ["oom", "stopped", "ok"]
    assert outcomes[keys[1]].step_s == 1.9
    study.ask()
    assert study.trials[-1].user_attrs["strategy"] not in outcomes


def test_a_trial_that_the_user_enqueues_counts_as_its_strategy() -> None:
    sampler = ForerunSampler(rows())
    study = optuna.create_study(sampler=sampler)
    wanted = {"tp": 4, "dp": 2, "mbs": 1, "zero": 1, "sp": "on", "pp": 1, "recompute": "full"}
    study.enqueue_trial(wanted)
    study.optimize(measured(sampler), n_trials=1)
    assert study.trials[0].value == 1.40


def test_a_study_stops_when_no_run_is_worth_its_cost() -> None:
    sampler = ForerunSampler(rows(), training_s=10.0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(measured(sampler), n_trials=50)
    assert len(study.trials) <= len(TIMES) + 1


def test_a_study_of_another_aim_is_refused() -> None:
    study = optuna.create_study(direction="maximize", sampler=ForerunSampler(rows()))
    with pytest.raises(RequestError, match="minimizes"):
        study.ask()
