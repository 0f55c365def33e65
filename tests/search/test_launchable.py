"""Where stages differ, a row is led by what the framework can launch, and what it cannot launch is marked."""

from forerun.search.board.rows import NO_LAUNCH_MARK
from forerun.search.request.request import Request, legal_strategy, resolve
from forerun.search.samplers import Exploring
from forerun.search.stages import explore_request
from forerun.search.stages.launchable import launchable

REQUEST = Request(
    model="llama3-8b",
    cluster="dgx-a100-40",
    gpus="16",
    global_batch=64,
    seq_len=8192,
    overrides={"vpp": [1], "mbs": [1], "cp": [1], "placement": [0]},
)


def test_stages_that_recompute_differently_have_no_launch_file() -> None:
    setting = resolve(REQUEST)

    assert launchable(setting, legal_strategy(setting, "tp2 pp4 dp2 mbs1 zero1 sp layers=7,9,8,8"))
    assert not launchable(setting, legal_strategy(setting, "tp2 pp4 dp2 mbs1 zero1 sp recompute=full:2,none*3"))


def test_rows_without_a_launch_file_are_marked_and_no_safe_choice() -> None:
    board = explore_request(REQUEST, exploring=Exploring(per_stage=("layers", "recompute"), evaluations=300))
    setting = resolve(REQUEST)

    for row in board.rows:
        marked = any(mark.startswith(NO_LAUNCH_MARK) for mark in row.marks)
        assert marked is not launchable(setting, row.strategy)
        assert not (marked and any(launchable(setting, one.strategy) for one in row.variants))
        if marked:
            assert not any(note.startswith(f"safest: {row.name} ") for note in board.advice)
