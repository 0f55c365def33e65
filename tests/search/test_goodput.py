"""Searches that count failures: what they leave of every row, and whose order they change."""

import json
from typing import Any

import pytest
from forerun_cli import cli

from forerun.search import Exploring, Request, explore_request, search
from forerun.search.request.goodput import read_reliability
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError

SMALL: dict[str, Any] = {
    "model": "llama3-8b",
    "cluster": "dgx-h100",
    "global_batch": 512,
    "seq_len": 4096,
    "overrides": {"vpp": [1], "mbs": [1, 2], "cp": [1], "tp": [1, 2]},
}


def test_every_row_says_what_is_left() -> None:
    board = search(**SMALL, gpus=64, tokens=1e12, goodput="")
    for row in board.rows:
        assert row.goodput is not None and row.train_days is not None
        shares = ("checkpoints", "lost_work", "recovery", "waiting_for_nodes")
        assert row.goodput["effective_time"] + sum(row.goodput[name] for name in shares) == pytest.approx(1)
        assert row.goodput["train_days"] == pytest.approx(row.train_days / row.goodput["effective_time"])
    assert any(note.startswith("goodput on 64 GPUs") for note in board.notes)
    assert any(default.startswith("goodput: 2e-05 failures") for default in board.defaults)


def test_time_without_steps_takes_less_energy_than_steps_do() -> None:
    row = search(**SMALL, gpus=64, tokens=1e12, goodput="failures=0.01,recovery=1h").rows[0]
    assert row.goodput is not None and row.train_mwh is not None

    added = row.goodput["train_mwh"] / row.train_mwh - 1
    assert 0 < added < 1 / row.goodput["effective_time"] - 1


def test_on_one_number_of_gpus_the_order_stays() -> None:
    names = [
        [row.name for row in search(**SMALL, gpus=64, goodput=facts).rows] for facts in (None, "", "failures=1e-3")
    ]

    assert names[0] == names[1] == names[2]


def test_frequent_failures_make_fewer_gpus_faster() -> None:
    ideal = search(**SMALL, gpus="64..512").rows[0]
    failing = search(**SMALL, gpus="64..512", goodput="failures=0.01,recovery=5min,interval=30min").rows[0]

    assert ideal.gpus == 512
    assert failing.gpus < 512


def test_so_they_do_where_stages_may_differ() -> None:
    pinned = {"pp": [2], "tp": [1], "mbs": [1], "zero": [1], "recompute": ["none"], "schedule": ["1f1b"]}
    fields = {**SMALL, "overrides": {**SMALL["overrides"], **pinned, "placement": ["tp-cp-ep-dp-pp"]}}
    facts = "failures=0.01,recovery=5min,interval=30min"
    exploring = Exploring(evaluations=10)
    ideal, failing = (
        explore_request(Request(**fields, gpus="64..512", goodput=goodput), exploring=exploring).rows[0]
        for goodput in (None, facts)
    )

    assert ideal.gpus == 512
    assert failing.gpus < 512
    assert failing.goodput is not None and failing.throughput > failing.goodput["tokens_per_s"]


def test_a_checkpoint_has_weights_and_optimizer_states() -> None:
    setting = resolve(Request(**SMALL, gpus="64", goodput=""))
    assert setting.interrupted is not None

    assert setting.interrupted.checkpoint_bytes == pytest.approx(8.03e9 * 14, rel=1e-3)


def test_facts_are_read_with_their_units() -> None:
    read = read_reliability("failures=1e-4, recovery=5min, interval=1h, storage=2GB/s, spares=3, repair=12h")

    assert (read.failures_per_device_hour, read.recovery_s, read.interval_s) == (1e-4, 300, 3600)
    assert (read.checkpoint_bytes_per_s, read.spare_nodes, read.repair_s) == (2e9, 3, 43200)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("failure=1", "fact of --goodput"),
        ("recovery", "FACT=VALUE"),
        ("recovery=1min,recovery=2min", "once each"),
        ("recovery=10", "unit"),
        ("hardware=x", "must be a number"),
        ("interval=-5min", "at least 0"),
        ("failures=100", "does not progress"),
    ],
)
def test_wrong_facts_are_refused(facts: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        search(**SMALL, gpus=64, goodput=facts)


def test_the_command_line_says_it_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["search", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "64", "--global-batch", "512"]
    arguments += ["--seq-len", "4096", "--set", "vpp=1", "--set", "mbs=1", "--goodput", "recovery=20min", "--json"]
    code, out, _ = cli(capsys, *arguments)
    row = json.loads(out)["leaderboard"][0]

    assert code == 0
    assert 0.9 < row["goodput"]["effective_time"] < 1


def test_the_terminal_says_which_days_count_failures(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["search", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "64", "--global-batch", "512"]
    arguments += ["--seq-len", "4096", "--set", "vpp=1", "--set", "mbs=1", "--tokens", "1T", "--train-within", "60d"]
    plain, failing = (" ".join(cli(capsys, *arguments, *more)[1].split()) for more in ((), ("--goodput", "")))

    assert " days without failures (" in failing and "% with failures." in failing
    assert "failures" not in plain and "P(in 60 d) = " in plain


def test_a_training_that_never_fails_has_finite_figures() -> None:
    board = search(**SMALL, gpus=64, goodput="failures=0,interval=30min")

    assert "between_failures_s" not in (board.rows[0].goodput or {})
    assert any("no failure" in note for note in board.notes)
    assert json.dumps(board.to_json(), allow_nan=False)


def test_facts_out_of_reason_are_refused() -> None:
    for text in ("spares=1" + "0" * 400, "recovery=1e300s", "failures=1e6", "interval=0s", "storage=0GB/s"):
        with pytest.raises(RequestError):
            read_reliability(text)


@pytest.mark.slow
def test_spares_that_never_suffice_are_named() -> None:
    with pytest.raises(RequestError, match="1 spare nodes never suffice"):
        search(**SMALL, gpus=64, goodput="failures=0.01,interval=30min,spares=1,repair=1000h")
