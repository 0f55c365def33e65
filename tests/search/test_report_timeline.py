"""The timeline on the page: runs of slices that agree with the simulation they come from."""

import dataclasses
import itertools
import re

import pytest

from forerun.search import Leaderboard, search
from forerun.search.report import timeline
from forerun.search.report.details import resolved_request
from forerun.search.report.timeline import COLUMNS, LOOKS, MOST_PASSES, drawing, timeline_section
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator.events import KINDS, simulate
from forerun.spaces.strategies import parse_strategy

STRATEGY = "tp2 pp4 dp2 mbs1 zero1 sp"
REQUEST = Request(model="llama3-8b", cluster="dgx-h100", global_batch=32, seq_len=4096)


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    found = search("llama3-8b", cluster="dgx-h100", gpus=16, global_batch=32, seq_len=4096, top=1)
    return dataclasses.replace(found, rows=(dataclasses.replace(found.rows[0], strategy=parse_strategy(STRATEGY)),))


def test_every_kind_has_a_look_of_its_own() -> None:
    assert set(LOOKS) == set(KINDS)
    shapes = [(look.low, look.high) for kind, look in LOOKS.items() if kind != "input gradient"]
    assert all(0 <= low < high <= timeline.HEIGHT for low, high in shapes)
    assert (LOOKS["forward"].low, LOOKS["forward"].high) != (LOOKS["backward"].low, LOOKS["backward"].high)


def test_runs_do_not_overlap_and_hold_the_time_of_their_tasks() -> None:
    result = simulate(resolve(REQUEST).context, parse_strategy(STRATEGY))

    drawn = drawing(result)

    assert len(drawn) == 4
    for stage, (compute, _) in enumerate(drawn):
        runs = sorted(run for found in compute.values() for run in found)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs))
        assert 0 <= runs[0][0] and runs[-1][1] <= COLUMNS
        for kind in ("forward", "backward"):
            tasks_s = sum(
                task.end_s - task.start_s
                for task in result.timeline()
                if (task.stage, task.kind, task.stream) == (stage, kind, "compute")
            )
            slices = sum(last - first for first, last in compute[kind])
            assert slices * result.step_time_s / COLUMNS == pytest.approx(tasks_s, rel=0.1)


def test_a_row_for_every_stage(board: Leaderboard) -> None:
    text = timeline_section(board, resolved_request(board))

    assert re.findall(r"stage (\d)</span>", text) == ["0", "1", "2", "3"]
    assert text.count('class="compute"') == 4
    assert "Simulated event by event" in text


def test_a_model_that_is_gone_is_no_error(board: Leaderboard) -> None:
    gone = dataclasses.replace(board, request={**board.request, "model": "gone.yaml"})

    assert timeline_section(gone, resolved_request(gone)).startswith("<p>No timeline: ")
    assert "gone.yaml" in timeline_section(gone, resolved_request(gone))


def test_long_steps_are_not_drawn(board: Leaderboard) -> None:
    long = dataclasses.replace(board, request={**board.request, "global_batch": MOST_PASSES})

    assert "No timeline: a step has" in timeline_section(long, resolved_request(long))
