"""Traces follow the Trace Event Format; Gantt charts show the schedule."""

import gzip
import itertools
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from forerun_examples import request as small_request

from forerun.simulator.events import (
    ChunkCost,
    EventResult,
    StageCost,
    StepCosts,
    simulate,
    simulate_costs,
    timeline_svg,
)
from forerun.simulator.events.export.gantt import timeline_text
from forerun.simulator.events.export.trace import trace_events, write_trace
from forerun.spaces.schedules import PipelineShape
from forerun.spaces.strategies import Schedule, parse_strategy

NUMBER = (int, float)
PHASES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "M": {"name": str, "pid": int, "args": dict},
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": NUMBER, "dur": NUMBER, "args": dict},
    "s": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": NUMBER},
    "f": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": NUMBER, "bp": str},
    "C": {"name": str, "pid": int, "ts": NUMBER, "args": dict},
}
"""Fields that every phase must have (Google's "Trace Event Format" document, sections on each)."""


@pytest.fixture(params=["tp2 pp4 dp4 mbs1 zero1", "dp8 mbs2 zero3", "pp4 dp2 vpp2 schedule=zb-v"])
def result(request: pytest.FixtureRequest) -> EventResult:
    return simulate(small_request(framework="generic", global_batch=32), parse_strategy(request.param))


def broken_laws(events: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with a list of trace events."""
    laws = []
    for event in events:
        fields = PHASES.get(event.get("ph", ""))
        if fields is None:
            laws.append(f"unknown phase {event}")
            continue
        laws += [f"{name} of {event}" for name, kind in fields.items() if not isinstance(event.get(name), kind)]
        if event["ph"] == "C" and not all(isinstance(value, NUMBER) for value in event["args"].values()):
            laws.append(f"counter {event}")
        if event.get("ts", 0) < 0 or event.get("dur", 0) < 0:
            laws.append(f"negative time {event}")
    begun = [event["id"] for event in events if event["ph"] == "s"]
    ended = [event["id"] for event in events if event["ph"] == "f"]
    return laws if sorted(begun) == sorted(ended) else [*laws, "flows without an end"]


def test_every_event_has_the_fields_of_its_phase(result: EventResult) -> None:
    document = json.loads(json.dumps(trace_events(result)))

    assert broken_laws(document["traceEvents"]) == []
    assert document["otherData"]["step_time_s"] == result.step_time_s
    assert broken_laws([{"ph": "X", "name": "x"}, {"ph": "Q"}, {"ph": "s", "id": 3}])


def test_slices_of_one_thread_do_not_overlap_and_end_with_the_step(result: EventResult) -> None:
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace_events(result)["traceEvents"]:
        if event["ph"] == "X":
            threads.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        slices.sort()
        for (_, end), (start, _) in itertools.pairwise(slices):
            assert start >= end * (1 - 1e-12)

    assert max(end for slices in threads.values() for _, end in slices) == pytest.approx(result.step_time_s * 1e6)


def test_passes_say_what_they_consist_of(result: EventResult) -> None:
    passes = [one for one in trace_events(result)["traceEvents"] if one.get("cat") in ("forward", "backward")]
    assert passes
    for one in passes:
        parts = {name: value for name, value in one["args"].items() if name.endswith("_ms")}
        assert "compute_ms" in parts and sum(parts.values()) * 1e3 == pytest.approx(one["dur"])


def test_arrows_lead_forward_in_time_to_another_stage(result: EventResult) -> None:
    begun = {e["id"]: e for e in trace_events(result)["traceEvents"] if e["ph"] == "s"}
    ended = {e["id"]: e for e in trace_events(result)["traceEvents"] if e["ph"] == "f"}

    assert bool(begun) == (len(result.stages) > 1)
    for number, event in begun.items():
        assert event["ts"] <= ended[number]["ts"]
        assert abs(event["pid"] - ended[number]["pid"]) == 1


def test_counters_show_the_peak(result: EventResult) -> None:
    held = [e["args"]["bytes"] for e in trace_events(result)["traceEvents"] if e["ph"] == "C" and e["pid"] == 0]

    assert max(held) == pytest.approx(result.stages[0].peak_bytes)


def test_compressed_and_plain_files_hold_the_same(result: EventResult, tmp_path: Path) -> None:
    for name in ("a.json", "a.json.gz", "b.json.gz"):
        write_trace(result, tmp_path / name)

    packed = (tmp_path / "a.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.json").read_bytes()
    assert packed == (tmp_path / "b.json.gz").read_bytes()


def test_the_gantt_chart_of_1f1b_is_the_picture_of_the_paper() -> None:
    """Two stages, three microbatches, backward twice as long as forward; one column per unit of time."""
    chunk = ChunkCost(forward_s=1.0, backward_s=2.0, weight_s=1.0, parts={"compute": 3.0})
    costs = StepCosts(
        schedule=Schedule.ONE_F_ONE_B,
        shape=PipelineShape(pp=2, vpp=1, microbatches=3),
        chunks=(chunk, chunk),
        stages=tuple(StageCost(share={stage: 1.0}) for stage in range(2)),
    )
    lines = timeline_text(simulate_costs(costs), 12 + 9).splitlines()

    assert lines[:2] == ["stage 0  FF..BBFBB.BB", "stage 1  .FBBFBBFBB.."]
    assert lines[2].split() == ["0", "12", "s"]


def test_the_gantt_chart_is_as_wide_as_asked(result: EventResult) -> None:
    assert all(len(line) <= 80 for line in timeline_text(result, 80).splitlines()[:-1])


def test_the_picture_is_well_formed_and_shows_every_stage_to_scale(result: EventResult) -> None:
    root = ElementTree.fromstring(timeline_svg(result, 1000))
    boxes = [box for box in root.iter("{http://www.w3.org/2000/svg}rect") if len(box)]
    labels = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]

    assert [f"stage {number}" for number in range(len(result.stages))] == [n for n in labels if n and n[:5] == "stage"]
    assert max(float(box.get("x", 0)) + float(box.get("width", 0)) for box in boxes) == pytest.approx(992, abs=0.02)
    assert min(float(box.get("x", 0)) for box in boxes) == 64
    assert "script" not in timeline_svg(result)
