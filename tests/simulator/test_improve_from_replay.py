"""The step of one rank, as `improve` takes it from traces: which operator makes which gradient."""

import json

import pytest

from forerun.simulator.improve.from_replay import replayed_step
from forerun.simulator.improve.operator_changes import OperatorChange, changed_steps
from forerun.simulator.improve.step import Op
from forerun.simulator.improve.what_if import kind_of
from forerun.simulator.replay import analyse_files
from forerun.spaces.errors import RequestError


def operator(name, ts, dur, tid=1, cat="cpu_op", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def gradient(ts, elements, took=10.0):
    shape = {"Input Dims": [[elements]], "Input type": ["float"]}
    return [
        operator("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", ts, took),
        operator("torch::autograd::AccumulateGrad", ts + 1.0, 5.0, **shape),
    ]


@pytest.fixture
def found(tmp_path):
    """A host was elsewhere for 300 us before the gradient of a bias; that of the weight comes 20 us behind it."""
    for rank in range(2):
        events = [
            operator("aten::linear", 0.0, 200.0),
            operator("autograd::engine::evaluate_function: AddmmBackward0", 210.0, 400.0),
            *gradient(910.0, 8),
            *gradient(930.0, 64, took=30.0),
            operator("c10d::allreduce_", 945.0, 5.0),
            operator("gloo:all_reduce", 948.0, 300.0, tid=2, cat="user_annotation", **{"Input Dims": [[72]]}),
            operator("aten::add_", 1260.0, 40.0),
        ]
        events[-2]["args"]["Input type"] = ["float"]
        document = {"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(document))
    analysis = analyse_files([tmp_path])
    return analysis, replayed_step(analysis).step, replayed_step(analysis).plan


def test_each_gradient_belongs_to_the_operator_during_which_it_was_ready(found):
    _, step, plan = found
    assert [op.gradient_bytes for op in step.ops] == [0, 0, 256, 32, 0]
    assert plan.buckets == ((3, 2),)
    seconds = [op.backward_s for op in step.ops]
    assert seconds[1:] == pytest.approx([15e-6, 25e-6, 310e-6, 400e-6])  # each with the gap before it


def test_the_forward_pass_is_an_operator_of_its_own(found):
    first, *others = found[1].ops
    assert first.name == "forward pass" and first.forward_s == pytest.approx(210e-6) and not first.backward_s
    assert all(not op.forward_s for op in others)


def test_a_faster_link_leaves_what_hosts_take_of_a_message(found):
    """288 bytes in 300 us, each of which crosses a rank's link once; a link of 1.92 MB/s needs half of that."""
    wire = replayed_step(found[0], link_bytes_per_s=1.92e6).step.wire
    assert float(wire.seconds(288.0)) == pytest.approx(300e-6)
    assert float(wire.faster(2.0).seconds(288.0)) == pytest.approx(225e-6)
    assert float(wire.faster(1e9).seconds(288.0)) == pytest.approx(150e-6)
    nominal = replayed_step(found[0], link_bytes_per_s=1e5).step.wire  # slower than what was measured
    assert float(nominal.faster(2.0).seconds(288.0)) == pytest.approx(150e-6)
    # No network is so slow that 288 bytes took 300 us of it: what it did not need, twice its rate does not save.
    assert float(found[1].wire.faster(2.0).seconds(288.0)) == pytest.approx(300e-6 - 288 / 125e6 / 2)


def test_what_others_call_cannot_be_changed_by_itself(found):
    change = OperatorChange(operators="torch::autograd::AccumulateGrad", factor=0.5)
    with pytest.raises(RequestError, match="name its caller"):
        changed_steps(found[0], [change])
    with pytest.raises(RequestError, match="did you mean aten::linear"):
        changed_steps(found[0], [OperatorChange(operators="aten::liner", factor=0.5)])


def test_numbers_do_not_make_kinds():
    names = ("torch::autograd::AccumulateGrad.34", "AddmmBackward0.3", "layer4/1/conv2", "forward pass")
    kinds = [kind_of(Op(name=name, forward_s=0.0, backward_s=1.0)) for name in names]
    assert kinds == ["torch::autograd::AccumulateGrad", "AddmmBackward", "conv", "forward pass"]
