"""Trace files of dPRO, Horovod and BytePS."""

import json

import numpy as np
import pytest

from forerun.simulator.improve import RULES, improve, simulate
from forerun.simulator.improve.from_replay import replayed_step
from forerun.simulator.improve.run_questions import run_questions
from forerun.simulator.replay import analyse_files, match, read_traces
from forerun.spaces.errors import RequestError
from tests.fuzz.graphs_and_traces import dpro_events


def test_events_of_dpro(tmp_path):
    events = dpro_events()
    path = tmp_path / "bps_trace_final.json"
    path.write_text(json.dumps({"traceEvents": events}))
    traces = read_traces([path])
    assert [trace.rank for trace in traces] == [0, 1] and [trace.host for trace in traces] == ["host0", "host1"]
    matching = match(traces)
    assert len(matching.exchanges) == 8 and not matching.unmatched
    assert all(one.operation == "pair" and one.size_bytes == 4096 for one in matching.exchanges)
    analysis = analyse_files([path])
    assert abs(analysis.replay.error) < 0.01 and len(analysis.replay.measured_s) == 2
    bad = tmp_path / "bad.json"
    bad.write_text(
        json.dumps({"traceEvents": [*events, {"name": "what", "ts": 1, "dur": 1, "ph": "X", "pid": "h.rank0"}]})
    )
    with pytest.raises(RequestError, match="a pid as host0"):
        read_traces([bad])


def dpro_event(what, rank, ts, dur, step, tid=0, **args):
    pid = rank if isinstance(rank, str) else f"host{rank}.rank{rank}"
    return {"name": what, "ts": ts, "dur": dur, "ph": "X", "pid": pid, "tid": tid, "args": {"step": step, **args}}


def test_sends_and_receives_on_one_thread_overlap(tmp_path):
    events = []
    for rank in range(2):
        for step in range(2):
            at = 1000 * step
            events += [dpro_event("FW.a", rank, at, 100, step), dpro_event("BW.a", rank, at + 100, 200, step)]
            for word, begin in (("SEND", 300), ("RECV", 310)):
                name = f"Comm.a.{word}"
                events.append(dpro_event(name, rank, at + begin, 200, step, "0", name=f"{name}~>0_0_0_0", size=64))
            events.append(dpro_event("UPDATE_0", rank, at + 510, 50, step))
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    analysis = analyse_files([tmp_path])
    assert analysis.replay.graph.traces[0].lanes[1:] == ("communication 0", "communication 0 #2")
    assert analysis.replay.replayed_step_s == pytest.approx(analysis.replay.step_s, rel=1e-9)
    assert len(analysis.replay.graph.matching.exchanges) == 4 * 2 // 2 and not analysis.replay.graph.matching.unmatched


@pytest.mark.parametrize(
    "size,dur",
    [(1e400, 200), (1e308, 200), (64, 1e-300), (10**400, 200)],
    ids=["infinite", "beyond numbers", "no time", "beyond floats"],
)
def test_messages_of_dpro_beyond_reason_leave_an_answer(tmp_path, size, dur):
    events = []
    for rank in range(2):
        for step in range(2):
            at = 1000 * step
            events += [dpro_event("FW.a", rank, at, 100, step), dpro_event("BW.a", rank, at + 100, 200, step)]
            for piece, sent in enumerate((64, size)):
                for word, begin in (("SEND", 300 + 210 * piece), ("RECV", 310 + 210 * piece)):
                    name = f"Comm.a.{word}"
                    more = {"name": f"{name}~>0_0_{piece}_0", "size": sent}
                    events.append(dpro_event(name, rank, at + begin, dur if piece else 200, step, word, **more))
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    analysis = analyse_files([tmp_path])
    assert analysis.replay.replayed_step_s == pytest.approx(analysis.replay.step_s, rel=1e-9)
    assert all(np.isfinite(link.total_bytes) and not np.isinf(link.bandwidth_bytes_per_s) for link in analysis.links)


def test_stages_of_horovod(tmp_path):
    """Rank 1 is 80 us late: rank 0 waits for it in the negotiation, and in a reduction that begins with it."""
    events = []
    for rank in range(2):
        for step in range(2):
            at = 2000 * step
            events += [
                dpro_event("FW.a", rank, at, 100, step),
                dpro_event("BW.a", rank, at + 100, 200 + 80 * rank, step),
            ]
            stages = (("NEGOTIATE_ALLREDUCE", 300 + 80 * rank, 400), ("QUEUE", 400, 450))
            stages += (("MEMCPY_IN_FUSION_BUFFER", 450, 460), ("NCCL_ALLREDUCE", 460, 700))
            for word, begin, end in (*stages, ("MEMCPY_OUT_FUSION_BUFFER", 700, 720)):
                events.append(dpro_event(f"Comm.a.{word}", rank, at + begin, end - begin, step, "horovod", size=4096))
            events.append(dpro_event("UPDATE_0", rank, at + 720, 30, step))
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    analysis = analyse_files([tmp_path])
    exchanges = analysis.replay.graph.matching.exchanges
    assert [one.operation for one in exchanges] == ["barrier", "all_reduce"] * 2
    assert analysis.replay.replayed_step_s == pytest.approx(analysis.replay.step_s, rel=1e-9)
    assert analysis.uses[0].waiting_s == pytest.approx(80e-6) and analysis.uses[1].waiting_s == pytest.approx(0)
    # Without its delay the step is as much shorter: all stages follow the negotiation.
    (change,) = [what for what in run_questions(analysis) if what.name == "no straggler"]
    assert change.gain_s == pytest.approx(80e-6, rel=0.3)


def tensors_on_the_way(kind, *, size, wire, count=6, steps=3):
    """A run of two ranks: one tensor every 100 us of backward pass, sent one after the other."""
    events = []
    for rank in range(2):
        for step in range(steps):
            at, free = 10_000 * step, 0
            events.append(dpro_event("FW.net", rank, at, 300, step))
            for turn in range(count):
                name, made = f"layer{count - 1 - turn}", at + 400 + 100 * turn
                events.append(dpro_event(f"BW.{name}", rank, made - 100, 100, step))
                begin, half = max(made, free), wire // 2
                stages = [("PUSH_REQ", 0), ("PULL_RES", half)] if kind == "byteps" else [("SEND", 0), ("SEND", half)]
                for piece, (word, after) in enumerate(stages):
                    more = {"size": size // (1 if kind == "byteps" else 2), "name": f"{name}~>0_0_{piece}_0"}
                    for one in (word, "RECV") if word == "SEND" else (word,):
                        events.append(dpro_event(f"Comm.{name}.{one}", rank, begin + after, half, step, one, **more))
                free = begin + wire
            events.append(dpro_event("UPDATE_0", rank, free + 10, 50, step))
    return events


@pytest.mark.parametrize("kind", ["dpro", "byteps"])
def test_runs_whose_traces_name_tensors_can_be_improved(tmp_path, kind):
    (tmp_path / "trace.json").write_text(
        json.dumps({"traceEvents": tensors_on_the_way(kind, size=2**20, wire=150, steps=3)})
    )
    found = replayed_step(analyse_files([tmp_path]))
    assert found.step.gradient_bytes == pytest.approx(6 * 2**20) and len(found.plan.buckets) == 6
    assert float(found.step.wire.seconds(2**20)) == pytest.approx(150e-6, rel=0.02)
    assert simulate(found.step, found.plan).step_s == pytest.approx(found.measured_s, rel=0.01)


def test_joining_small_messages_of_one_size_pays(tmp_path):
    """20 kB in a millisecond is no matter of bytes: as one message they take little more than one of them."""
    (tmp_path / "trace.json").write_text(
        json.dumps({"traceEvents": tensors_on_the_way("dpro", size=20_000, wire=1000, steps=1)})
    )
    found = replayed_step(analyse_files([tmp_path]))
    gained = improve(found.step, RULES["ddp"], base=found.plan)
    # Six messages behind the first 400 us, and one of 120 kB behind 900 us.
    assert gained.default.step_s == pytest.approx(6.46e-3, rel=0.02)
    joined_s = 900e-6 + 1e-3 + 100_000 / 125e6 + 60e-6
    assert gained.best.step_s <= joined_s * 1.03


def test_pushes_and_pulls_of_byteps(tmp_path):
    """A worker's pull ends when all have pushed; what the server does is part of it."""
    events = [dpro_event("Comm.a.SUM", "server_0", 500, 100, 0)]
    for rank in range(2):
        late = 120 * rank
        for step in range(2):
            at = 2000 * step
            events += [dpro_event("FW.a", rank, at, 100, step), dpro_event("BW.a", rank, at + 100, 100 + late, step)]
            stages = (("PUSH_REQ", 200 + late, 300 + late), ("PUSH_RES", 300 + late, 310 + late))
            for word, begin, end in (*stages, ("PULL_REQ", 310 + late, 320 + late), ("PULL_RES", 450, 600)):
                events.append(dpro_event(f"Comm.a.{word}", rank, at + begin, end - begin, step, "0", size=4096))
            events.append(dpro_event("UPDATE_0", rank, at + 600, 30, step))
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    analysis = analyse_files([tmp_path])
    assert [one.operation for one in analysis.replay.graph.matching.exchanges] == ["push_pull"] * 2
    assert analysis.replay.replayed_step_s == pytest.approx(analysis.replay.step_s, rel=1e-9)
    assert analysis.uses[0].waiting_s == pytest.approx(120e-6) and analysis.uses[1].waiting_s == pytest.approx(0)
