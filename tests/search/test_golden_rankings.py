"""The best ten strategies of three requests stay what they are unless somebody means to change them.

``FORERUN_REGENERATE_GOLDEN=1 pytest tests/search/test_golden_rankings.py`` writes them anew; the diff belongs into the
same commit as its reason.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from forerun.search import search

GOLDEN = Path(__file__).parent / "golden"
REGENERATE = os.environ.get("FORERUN_REGENERATE_GOLDEN") == "1"
REQUESTS: dict[str, dict[str, Any]] = {
    "llama3-70b-64-h100": {
        "model": "llama3-70b",
        "cluster": "dgx-h100",
        "gpus": 64,
        "global_batch": 128,
        "seq_len": 8192,
    },
    "mixtral-8x7b-128-h100": {
        "model": "mixtral-8x7b",
        "cluster": "dgx-h100",
        "gpus": 128,
        "global_batch": 256,
        "seq_len": 4096,
    },
    "gpt3-13b-32-a100": {
        "model": "gpt3-13b",
        "cluster": "dgx-a100-80",
        "gpus": 32,
        "global_batch": 128,
        "seq_len": 2048,
    },
}
CLOSE = 1e-6
"""Rows are compared to this relative difference: numpy's elementary functions differ a little between processors."""


def ranking(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a leaderboard as the golden files hold them."""
    return [
        {
            "strategy": row.name,
            "step_time_s": round(row.step_time_s, 9),
            "peak_memory_gib": round(row.peak_memory_gib, 6),
        }
        for row in search(**request, top=10).rows
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * name.startswith("mixtral")) for name in REQUESTS]
)
def test_ranking_of(name: str) -> None:
    found, path = ranking(REQUESTS[name]), GOLDEN / f"{name}.json"
    if REGENERATE:
        path.write_text(json.dumps({"request": REQUESTS[name], "rows": found}, indent=2) + "\n", encoding="utf-8")
        pytest.skip(f"{path.name} written anew")
    golden = json.loads(path.read_text(encoding="utf-8"))

    assert golden["request"] == REQUESTS[name]
    assert [row["strategy"] for row in found] == [row["strategy"] for row in golden["rows"]]
    for row, expected in zip(found, golden["rows"], strict=True):
        assert row["step_time_s"] == pytest.approx(expected["step_time_s"], rel=CLOSE)
        assert row["peak_memory_gib"] == pytest.approx(expected["peak_memory_gib"], rel=CLOSE)


def test_every_golden_file_has_a_request() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(REQUESTS)
