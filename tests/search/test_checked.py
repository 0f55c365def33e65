"""What a search says of how well predictions like its own met measured runs."""

import dataclasses
import re
from collections.abc import Callable
from importlib import resources
from types import SimpleNamespace

import pytest

from forerun.search import Leaderboard
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.validated_runs import checked_note, entry_of, figures
from forerun.search.answer.searches import explore_request, search_request
from forerun.search.board.rows import Row
from forerun.search.explore.samplers import Exploring
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.spaces.strategies import parse_strategy


def row(gpus: int = 8) -> Row:
    """A row of so many devices that computes most of the time."""
    shares = {"compute": 0.8, "recompute": 0.0, "data": 0.2}
    made: Row = SimpleNamespace(gpus=gpus, breakdown_s=shares, strategy=parse_strategy("dp8"))  # type: ignore[assignment]
    return made


def setting(model: str, cluster: str, framework: str) -> Setting:
    return resolve(Request(model=model, cluster=cluster, gpus="8", global_batch=64, seq_len=2048, framework=framework))


def test_every_entry_is_of_known_names_and_has_enough_runs() -> None:
    from forerun.spaces.clusters import device_names
    from forerun.spaces.frameworks import framework_names

    keys = [(entry["device"], entry["framework"], entry["experts"]) for entry in figures()["entries"]]
    assert len(set(keys)) == len(keys)
    assert {device for device, _, _ in keys} <= {*device_names(), None}
    assert {framework for _, framework, _ in keys} <= {*framework_names(), None}
    assert all(entry["rows"] >= 1 and entry["gpus"] >= 1 for entry in figures()["entries"])
    assert resources.files("forerun.search.answer.notes").joinpath("data", "checked.json").is_file()


def test_the_nearest_runs_are_named() -> None:
    exact = entry_of("a100-sxm4-80", "megatron-lm", experts=False)
    assert exact is not None
    (note,) = checked_note(setting("llama3-8b", "dgx-a100-80", "megatron-lm"), (row(),), NoteSearch())
    assert note.startswith(
        f"validated on {exact['rows']:,} measured runs of dense models on a100-sxm4-80 with megatron-lm"
    )
    assert f"median error {exact['median_pct']:.1f}%" in note
    assert re.search(r"; 80% of measured steps are expected within 0\.\d\d to 1\.\d\d times the prediction$", note)

    (note,) = checked_note(setting("llama3-8b", "dgx-a100-80", "generic"), (row(),), NoteSearch())
    assert note.startswith("not validated with generic on a100-sxm4-80; ")
    (note,) = checked_note(setting("mixtral-8x7b", "dgx-a100-80", "generic"), (row(),), NoteSearch())
    assert note.startswith("no measured run of models with experts on a100-sxm4-80 (")
    assert "none with" not in note
    (note,) = checked_note(setting("nemotron-h-8b", "dgx-a100-80", "megatron-lm"), (row(),), NoteSearch())
    assert "; none with Mamba-2; " in note
    (note,) = checked_note(setting("llama3-8b", "mi300x-platform", "generic"), (row(),), NoteSearch())
    assert note.startswith("no measured run of dense models on mi300x, known from data sheets and benchmarks; ")


def test_more_devices_than_any_run_had_are_said() -> None:
    exact = entry_of("h100-sxm", "nanotron", experts=False)
    assert exact is not None
    here = setting("llama3-8b", "dgx-h100", "nanotron")
    within, beyond = (row(2 * exact["gpus"] + more) for more in (0, 1))
    assert "the largest" not in checked_note(here, (within,), NoteSearch())[0]
    assert f"; the largest had {exact['gpus']} GPUs; " in checked_note(here, (beyond,), NoteSearch())[0]


def test_calibrated_requests_speak_by_their_intervals() -> None:
    here = setting("llama3-8b", "dgx-h100", "nanotron")
    corrected = dataclasses.replace(here.context, correction=object())  # type: ignore[arg-type]
    assert checked_note(dataclasses.replace(here, context=corrected), (row(),), NoteSearch()) == ()


REQUEST = Request(model="qwen3-0.6b", cluster="dgx-h100", gpus="8", global_batch=64, seq_len=2048)


@pytest.mark.parametrize(
    "run", [search_request, lambda request: explore_request(request, exploring=Exploring(evaluations=20))]
)
def test_a_search_says_it(run: Callable[[Request], Leaderboard]) -> None:
    assert sum(" measured runs" in note for note in run(REQUEST).notes) == 1
