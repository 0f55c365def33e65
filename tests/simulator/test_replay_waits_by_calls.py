"""A rank comes to a message of gloo when it asks for it, whenever a thread of gloo takes it up."""

import json

import pytest

from forerun.simulator.replay import analyse_files, read_traces
from forerun.simulator.replay.trace import SpanKind

SHAPE = {"Input Dims": [[8]], "Input type": ["float"]}


def operator(name, ts, dur, tid=1, cat="cpu_op", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def message(ts, dur, name="gloo:all_reduce", tid=2):
    return operator(name, ts, dur, tid=tid, cat="user_annotation", **SHAPE)


def analysed(folder, *ranks):
    for rank, events in enumerate(ranks):
        document = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    return analyse_files([folder])


def waited_for_at_once(asked, begun, call="c10d::_reduce_scatter_base_", took=40.0):
    """A rank that computes from 100 us on, asks at ``asked`` and waits until 1000; gloo begins at ``begun``."""
    return [
        operator("aten::mm", 100.0, asked - 100.0),
        operator(call, asked, took),
        message(begun, 1000.0 - begun),
        operator("aten::copy_", begun + 5.0, 10.0, tid=2),
        operator("aten::relu", 1010.0, 50.0),
    ]


@pytest.mark.parametrize("begun", [205.0, 450.0])
def test_a_wait_begins_with_the_call_and_ends_with_the_last_call(tmp_path, begun):
    # Gloo scatters by reducing for all: the record says all_reduce. Its second thread is 300 us late.
    analysis = analysed(tmp_path, waited_for_at_once(200.0, begun), waited_for_at_once(600.0, 900.0))
    early, late = analysis.uses
    assert early.waiting_s == pytest.approx(400e-6, abs=5e-6) and late.waiting_s == pytest.approx(0, abs=5e-6)
    assert analysis.blame_s[0, 1] == pytest.approx(early.waiting_s)
    assert early.compute_s == pytest.approx(150e-6, abs=1e-6)  # neither the call nor the copy of gloo's thread
    (moved,) = analysis.links
    assert (moved.operation, moved.count) == ("all_reduce", 1)


def in_a_backward_pass(first, last):
    """A rank whose operators ask for sums at 200 and ``last`` (calls take 100 and 60) and that waits from then on."""
    return [
        operator("autograd::engine::evaluate_function: AccumulateGrad", 150.0, 160.0),
        operator("c10d::allreduce_", 200.0, 100.0),
        message(first, 1000.0 - first),
        operator("aten::mm", 320.0, last - 330.0),
        operator("autograd::engine::evaluate_function: AccumulateGrad", last - 10.0, 80.0),
        operator("c10d::allreduce_", last, 60.0),
        message(last + 70.0, 1100.0 - last - 70.0, tid=3),
        operator("aten::add_", 1110.0, 50.0),
    ]


def test_only_the_call_before_a_wait_is_a_part_of_it(tmp_path):
    analysis = analysed(tmp_path, in_a_backward_pass(230.0, 500.0), in_a_backward_pass(230.0, 900.0))
    # From the call at 500 to that at 900, less 10 us of the operator behind the call; the first call is work.
    assert analysis.uses[0].waiting_s == pytest.approx(390e-6, abs=25e-6)
    assert analysis.uses[1].waiting_s == pytest.approx(0, abs=25e-6)
    (late,) = analysis.stragglers
    assert late.rank == 1 and late.excess_s == pytest.approx(400e-6, rel=0.05)


def test_a_thread_that_copies_for_a_message_does_not_compute(tmp_path):
    analysed(tmp_path, waited_for_at_once(200.0, 205.0), waited_for_at_once(600.0, 620.0))
    trace = read_traces([tmp_path])[0]
    names = {trace.title(span) for span in range(len(trace)) if trace.kind[span] == SpanKind.COMPUTE}
    assert "aten::copy_" not in names and "aten::relu" in names
