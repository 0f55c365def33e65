"""Row one is never slower and riskier than another row, and ties go to what practice would start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.search import search
from forerun.search.board.leaderboard import row_to_launch
from forerun.search.order.first_row import SAFER, undominated_first
from forerun.search.order.ideas import replaces

ROWS = st.lists(st.tuples(st.floats(1.0, 2.0), st.floats(0.0, 1.0)), min_size=1, max_size=12)


@given(rows=ROWS)
def test_no_row_beats_the_first_in_speed_and_risk(rows: list[tuple[float, float]]) -> None:
    seconds, risks = zip(*rows, strict=True)
    first, *others = undominated_first(seconds, risks)

    assert sorted([first, *others]) == list(range(len(rows)))
    assert others == sorted(others)
    assert not any(seconds[one] < seconds[first] and risks[one] < risks[first] - SAFER for one in others)


def test_a_variant_is_at_most_one_per_cent_slower_and_needs_no_less_memory() -> None:
    beaten = replaces([1.0, 1.009, 1.009, 1.02, 0.99], [8.0, 8.0, 7.0, 9.0, 9.0])

    assert [beaten(0, place) for place in range(1, 5)] == [True, False, False, False]


REQUESTS = (
    {"model": "llama3-70b", "cluster": "dgx-h100", "gpus": 32, "global_batch": 256, "seq_len": 8192},
    {"model": "llama3-8b", "cluster": "hgx-h200", "gpus": 16, "global_batch": 16, "seq_len": 131072},
    pytest.param(
        {"model": "mixtral-8x7b", "cluster": "dgx-h100", "gpus": 64, "global_batch": 256, "seq_len": 4096},
        marks=pytest.mark.slow,
    ),
    {"model": "gpt3-13b", "cluster": "dgx-a100-80", "gpus": 32, "global_batch": 64, "seq_len": 2048},
)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: str(one["model"]))
def test_searches_keep_to_it(request_: dict[str, object]) -> None:
    board = search(**request_)  # type: ignore[arg-type]  # keywords of a request
    first = board.rows[0]

    assert not any(row.step_time_s < first.step_time_s and row.oom_risk < first.oom_risk - SAFER for row in board.rows)
    assert not any("less GPU time than row 1" in note for note in board.advice if note.startswith("safest:"))
    ideas = [(row.gpus, *(getattr(row.strategy, axis) for axis in ("pp", "tp", "cp", "ep"))) for row in board.rows]
    etps = {(idea, row.strategy.etp) for idea, row in zip(ideas, board.rows, strict=True)}
    assert len({idea for idea, _ in etps}) == len(etps), "rows that differ by etp alone are one idea"


@pytest.mark.slow
def test_the_launched_row_below_one_without_a_launch_file_is_worth_most() -> None:
    """A safe variant of such a row is not shown with it, and was passed over for a risky row of equal speed."""
    board = search("deepseek-v3", cluster="ascend-cloudmatrix-384", gpus=384, global_batch=3072, seq_len=4096)
    launched = row_to_launch(board.rows)
    below = [row for row in board.rows if row.rank > launched.rank and not row.lacks_launch_file]

    assert board.rows[0].lacks_launch_file and launched.rank > 1
    assert launched.oom_risk < 0.05
    assert not [row for row in below if row.step_time_s <= launched.step_time_s and row.oom_risk <= launched.oom_risk]
