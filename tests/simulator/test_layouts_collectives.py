"""Collectives that follow from layouts: the rules of Proteus on its own cases, and laws of any inference."""

import math
from dataclasses import dataclass

import pytest
from forerun_examples import request
from hypothesis import given
from hypothesis import strategies as st

from forerun.simulator.costs import collective_time_s, point_to_point_time_s
from forerun.simulator.layouts import Layout, Transfer, fuse, halo, infer, operand_layout, transfer_time_s
from forerun.spaces.errors import RequestError
from forerun.spaces.operators import Cut, linear
from forerun.spaces.opgraph import Kind
from forerun.spaces.opgraph.axes import operator_axes
from forerun.spaces.opgraph.operator import Operator as GraphOperator

FOUR = (0, 1, 2, 3)
FC = linear("fc", batch={"batch": 64}, outputs={"out": 32}, inputs={"in": 16})


def fc(axis: str | None, devices: tuple[int, ...] = FOUR) -> Layout:
    """Layout of the output that a fully connected operator makes when one axis is cut over all devices."""
    return operand_layout(FC, FC.output, [Cut(axis=axis, degree=len(devices))], devices, summed=True)


WHOLE, ROWS, COLUMNS = Layout((1, 1), FOUR), Layout((4, 1), FOUR), Layout((1, 4), FOUR)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What an operator makes, how its output is kept, and what must happen."""

    made: Layout
    wanted: Layout
    kinds: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...] = (FOUR,)
    elements: float = 64 * 32


CASES = {
    "a partial sums, same layout: all-reduce": Case(made=fc("in"), wanted=WHOLE, kinds=("all_reduce",)),
    "b partial sums, kept in rows: reduce-scatter": Case(made=fc("in"), wanted=ROWS, kinds=("reduce_scatter",)),
    "b partial sums, kept in columns: reduce-scatter": Case(made=fc("in"), wanted=COLUMNS, kinds=("reduce_scatter",)),
    "b partial sums in two parts, each kept in two": Case(
        made=operand_layout(FC, FC.output, [Cut(axis="batch", degree=2), Cut(axis="in", degree=2)], FOUR, summed=True),
        wanted=Layout((2, 2), FOUR),
        kinds=("reduce_scatter",),
        groups=((0, 1), (2, 3)),
        elements=32 * 32,
    ),
    "b partial sums, kept in two copies of two parts": Case(
        made=fc("in"), wanted=Layout((2, 1), FOUR), kinds=("reduce_scatter", "all_reduce"), groups=((0, 2), (1, 3))
    ),
    "c finer than kept: all-gather": Case(made=fc("out"), wanted=WHOLE, kinds=("all_gather",)),
    "c samples finer than kept: all-gather": Case(
        made=fc("batch"), wanted=Layout((2, 1), FOUR), kinds=("all_gather",), groups=((0, 1), (2, 3)), elements=32 * 32
    ),
    "d one producer, kept in parts: scatter": Case(
        made=Layout((1, 1), (0,)), wanted=ROWS, kinds=("scatter",), groups=(FOUR,)
    ),
    "e parts, kept on one device: gather": Case(
        made=ROWS, wanted=Layout((1, 1), (2,)), kinds=("gather",), groups=((2, 0, 1, 3),)
    ),
    "samples to columns: all-to-all": Case(
        made=ROWS, wanted=COLUMNS, kinds=("all_to_all",), groups=(FOUR,), elements=16 * 32
    ),
    "copies at hand: nothing": Case(made=WHOLE, wanted=ROWS, kinds=()),
    "the same: nothing": Case(made=ROWS, wanted=ROWS, kinds=()),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_rules_on_their_own_cases(name: str) -> None:
    case = CASES[name]
    found = infer(case.made, case.wanted, (64, 32))

    assert tuple(transfer.kind for transfer in found) == case.kinds
    if found:
        assert found[0].groups == case.groups
        assert set(found[0].elements) == {case.elements}


def test_parts_that_match_no_rule_go_point_to_point() -> None:
    found = infer(Layout((3,), (0, 1, 2)), Layout((2,), (4, 5)), (12,))

    assert found == (
        Transfer(kind="point_to_point", groups=((0, 4), (1, 4), (1, 5), (2, 5)), elements=(4.0, 2.0, 2.0, 4.0)),
    )


def test_the_nearest_copy_sends() -> None:
    copies = Layout((1,), (0, 8))

    assert infer(copies, Layout((2,), (1, 9)), (10,))[0].groups == ((0, 1), (8, 9))


def test_every_addend_is_sent_where_partial_sums_move_away() -> None:
    found = infer(Layout((1,), (0, 1), partial=2), Layout((1,), (5,)), (10,))

    assert found[0].groups == ((0, 5), (1, 5))
    assert found[0].elements == (10.0, 10.0)


def test_tables_on_one_device_each_become_one_all_to_all() -> None:
    """DLRM: table i lies on device i, whose lookups all devices need for their own samples."""
    scatters = [
        transfer
        for table in FOUR
        for transfer in infer(Layout((1, 1), (table,)), Layout((4, 1), FOUR), (64, 16 * (table + 1)))
    ]

    assert fuse(scatters) == (Transfer(kind="all_to_all", groups=(FOUR,), elements=(64.0 * 64,)),)
    assert fuse(scatters[:3])[0].kind == "all_to_all"  # more devices than tables: those without wait
    assert fuse(scatters[:1])[0].kind == "scatter"


def test_a_table_cut_by_rows_gives_partial_sums() -> None:
    described = GraphOperator(name="tokens", kind=Kind.EMBEDDING, input=(1,), output=(16,), rows=100, lookups=1)
    table = operator_axes(described, 64)
    made = operand_layout(table, table.output, [Cut(axis="rows", degree=4)], FOUR, summed=True)

    assert made.partial == 4
    assert [t.kind for t in infer(made, WHOLE, (64, 16))] == ["all_reduce"]


def test_gradients_of_weights_are_partial_over_samples() -> None:
    gradient = operand_layout(FC, FC.weights[0], [Cut(axis="batch", degree=4)], FOUR, summed=True)
    kept = operand_layout(FC, FC.weights[0], [Cut(axis="batch", degree=4)], FOUR).sliced(4)

    assert [t.kind for t in infer(gradient, WHOLE, (16, 32))] == ["all_reduce"]
    open_gradient = Layout((1, 1, 1), gradient.devices, gradient.partial)
    assert [t.kind for t in infer(open_gradient, kept, (16, 32, 1))] == ["reduce_scatter"]
    assert [t.kind for t in infer(kept, Layout((1, 1, 1), FOUR), (16, 32, 1))] == ["all_gather"]


def test_neighbours_send_what_a_kernel_reaches() -> None:
    described = GraphOperator(
        name="c",
        kind=Kind.CONV,
        input=(3, 16, 16),
        output=(8, 16, 16),
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1),
        dilation=(1, 1),
    )
    conv = operator_axes(described, 2)
    layout = operand_layout(conv, conv.inputs[0], [Cut(axis="height", degree=4)], FOUR)
    (found,) = halo(layout, conv.shape(conv.inputs[0]), [d.halo for d in conv.inputs[0].dimensions])

    assert found.groups == ((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2))
    assert set(found.elements) == {2 * 3 * 16.0}
    assert halo(layout, (2, 3, 16, 16), (0, 0, 0, 2)) == ()


@pytest.mark.parametrize(
    ("degrees", "devices", "partial", "words"),
    [((2,), (0, 1, 2), 1, "equally many copies"), ((2,), (0, 0), 1, "named twice"), ((1,), (), 1, "equally many")],
)
def test_layouts_that_cannot_be(degrees: tuple[int, ...], devices: tuple[int, ...], partial: int, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        Layout(degrees, devices, partial)


def test_cuts_must_fill_the_devices() -> None:
    with pytest.raises(RequestError, match=r"fc is cut in batch=2 = 2 parts, but is on 4 devices"):
        operand_layout(FC, FC.output, [Cut(axis="batch", degree=2)], FOUR)


degree = st.sampled_from((1, 2, 3, 4))


@st.composite
def layouts(draw: st.DrawFn, *, partial: bool) -> Layout:
    degrees = (draw(degree), draw(degree))
    addends = draw(st.sampled_from((1, 2, 4))) if partial else 1
    count = math.prod(degrees) * addends * draw(st.sampled_from((1, 2)))
    first = draw(st.sampled_from((0, 4)))
    devices = draw(st.permutations(range(first, first + count)))
    return Layout(degrees, tuple(devices), addends)


@given(made=layouts(partial=True), wanted=layouts(partial=False))
def test_every_device_ends_with_what_it_needs(made: Layout, wanted: Layout) -> None:
    """What a device holds and what it receives add up to its part; collectives stay among the devices of both."""
    shape = (24, 48)
    found = infer(made, wanted, shape)
    named = {device for transfer in found for group in transfer.groups for device in group}
    assert named <= set(made.devices) | set(wanted.devices)
    if not found or found[0].kind != "point_to_point":
        return
    held, needed = made.part_of(), wanted.part_of()
    for device, part in needed.items():
        received = sum(size for (_, to), size in zip(found[0].groups, found[0].elements, strict=True) if to == device)
        own = 0.0
        if device in held:
            own = math.prod(
                max(min((i + 1) / a, (j + 1) / b) - max(i / a, j / b), 0.0)
                for i, a, j, b in zip(held[device], made.degrees, part, wanted.degrees, strict=True)
            ) * math.prod(shape)
        whole = math.prod(shape) / wanted.parts
        assert received + own == pytest.approx(whole * made.partial if made.partial > 1 else whole)


@given(made=layouts(partial=False), wanted=layouts(partial=False))
def test_gathering_undoes_what_needs_no_communication(made: Layout, wanted: Layout) -> None:
    """If nothing is sent one way, what is sent the other way are whole gathers, or nothing at all."""
    if set(made.devices) == set(wanted.devices) and not infer(made, wanted, (24, 48)):
        back = infer(wanted, made, (24, 48))
        assert not back or {t.kind for t in back} <= {"all_gather", "point_to_point"}


def test_prices_are_those_of_the_cost_rules() -> None:
    cluster = request().cluster
    group = Transfer(kind="all_reduce", groups=((0, 2), (1, 3)), elements=(1e6, 1e6))
    pair = Transfer(kind="point_to_point", groups=((0, 1),), elements=(1e6,))
    both = Transfer(kind="point_to_point", groups=((0, 1), (2, 1)), elements=(1e6, 1e6))

    assert transfer_time_s(cluster, group, 2.0) == float(collective_time_s(cluster, "all_reduce", 2e6, 2, 2))
    assert transfer_time_s(cluster, pair, 2.0) == float(point_to_point_time_s(cluster, 2e6, 1))
    assert transfer_time_s(cluster, both, 2.0) == float(point_to_point_time_s(cluster, 4e6, 1))


def test_pairs_across_nodes_pay_the_network() -> None:
    cluster = request().cluster
    size = cluster.levels[0].size
    near = Transfer(kind="point_to_point", groups=((0, size - 1),), elements=(1e7,))
    far = Transfer(kind="point_to_point", groups=((size - 1, size),), elements=(1e7,))

    assert transfer_time_s(cluster, far, 2.0) > 2 * transfer_time_s(cluster, near, 2.0)
