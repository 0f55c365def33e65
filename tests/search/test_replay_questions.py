"""Gaps, messages, operators by name and queues of a replayed run."""

import csv
import json
from pathlib import Path

import pytest

from forerun.search.cli import main

TRACES = Path(__file__).parents[1] / "simulator" / "traces" / "dp-transformer"


def test_gaps_messages_and_operators(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "messages.csv"
    command = ["replay", str(TRACES), "--gaps", "--messages", str(target), "--find", "aten::layer*", "--json", "--top"]
    assert main([*command, "5"]) == 0
    document = json.loads(capsys.readouterr().out)
    seconds = [gap["seconds"] for gap in document["gaps"]]
    assert len(seconds) == 5 and seconds == sorted(seconds, reverse=True) and seconds[-1] > 0
    assert {use["name"] for use in document["found"]} == {"aten::layer_norm"}
    with target.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert rows and {row["operation"] for row in rows} == {"all_reduce"} and {row["ranks"] for row in rows} == {"0 1"}
    assert all(float(row["took_s"]) > 0 and float(row["bytes"]) > 1e6 for row in rows)


@pytest.mark.slow
def test_tables_and_unknown_operators(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(TRACES), "--gaps", "--find", "aten::layer_norm"]) == 0
    out = capsys.readouterr().out
    assert "Longest gaps" in out and "aten::layer_norm" in out
    assert main(["replay", str(TRACES), "--find", "aten::lay"]) == 2
    assert "unknown operator of the traces" in capsys.readouterr().err


def test_queues_fill_and_empty(tmp_path: Path) -> None:
    target = tmp_path / "timeline.json"
    assert main(["replay", str(TRACES), "--timeline", str(target)]) == 0
    events = json.loads(target.read_text(encoding="utf-8"))["traceEvents"]
    queues: dict[tuple[int, str], list[int]] = {}
    for event in events:
        if event["ph"] == "C":
            queues.setdefault((event["pid"], event["name"]), []).append(event["args"]["spans"])
    assert queues
    assert all(min(lengths) == lengths[-1] == 0 and max(lengths) >= 1 for lengths in queues.values())
