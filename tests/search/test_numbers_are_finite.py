"""No infinite number and no NaN leaves: documents have null, tables a blank, people read words."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from forerun.search.cli import main
from forerun.search.files.documents import dump_json
from forerun.search.files.journal import line_of
from forerun.spaces.files import csv_text
from forerun.spaces.units import format_count, format_rate, format_seconds

SEARCH = "search qwen3-0.6b --cluster dgx-h100 --global-batch 16 --seq-len 512 --gpus 8 --top 2".split()
NONE = re.compile(r"\b(inf|infinity|nan)\b", re.IGNORECASE)
NUMBERS = st.floats() | st.integers() | st.none() | st.text("abc", max_size=3) | st.booleans()
KEYS = st.text("abc", max_size=3)
KEYS = st.text("abc", max_size=3)
VALUES = st.recursive(NUMBERS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=8)


def refuse(number: str) -> None:
    raise AssertionError(number)


@given(st.dictionaries(KEYS, VALUES))
def test_every_document_and_record_is_json(document: Mapping[str, Any]) -> None:
    json.loads(dump_json(document), parse_constant=refuse)
    json.loads(line_of({**document, "key": "k"}), parse_constant=refuse)


@given(st.floats())
def test_every_table_and_every_quantity_for_people(number: float) -> None:
    texts = csv_text(["n"], [{"n": number}]), format_seconds(number), format_rate(number), format_count(number)
    assert not any(NONE.search(text) for text in texts)


@pytest.mark.parametrize("facts", ["failures=0", "failures=0,spares=0", "failures=0,storage=1GB/s"])
@pytest.mark.slow
def test_a_training_without_failures_needs_no_checkpoint(facts: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SEARCH, "--goodput", facts, "--tokens", "1e12", "--json"]) == 0
    goodput = json.loads(capsys.readouterr().out, parse_constant=refuse)["leaderboard"][0]["goodput"]
    assert goodput["checkpoint_interval_s"] is None and goodput["effective_time"] == 1
    assert main([*SEARCH, "--goodput", facts]) == 0
    out = capsys.readouterr().out
    assert "no failure, no checkpoint is needed" in " ".join(out.split()) and not NONE.search(out)


@pytest.mark.slow
def test_a_sweep_with_a_search_without_failures_ends(tmp_path: Path) -> None:
    path, out = tmp_path / "plan.yaml", tmp_path / "out"
    plan = {
        "models": ["qwen3-0.6b"],
        "clusters": ["dgx-h100"],
        "workloads": [{"global_batch": 16, "seq_len": 512}],
        "budgets": [{"gpus": 8}, {"gpus": 8, "goodput": "failures=0"}],
    }
    path.write_text(yaml.safe_dump(plan))
    assert main(["sweep", str(path), "--out", str(out), "--workers", "serial"]) == 0
    assert main(["sweep", str(path), "--out", str(out), "--workers", "serial", "--resume"]) == 0
    assert main(["report", str(out)]) == 0


@pytest.mark.parametrize("rate,code", [("1e-306", 2), ("1e-3", 0), ("1e9", 0), ("1e10", 2)])
def test_rates_of_engines_are_those_that_leave_finite_times(
    rate: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rollout = "rollout qwen3-0.6b --cluster dgx-h100 --gpus 2 --global-batch 64 --seq-len 4096 --response 500".split()
    assert main([*rollout, "--rollout-rate", rate]) == code
    assert not NONE.search(capsys.readouterr().out)
