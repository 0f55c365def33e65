"""Every schedule keeps the contract of ``forerun.spaces.schedules.contract``."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.simulator.stages.plan import in_flight
from forerun.spaces.errors import RequestError
from forerun.spaces.schedules import SCHEDULES, Action, Pass, PipelineShape, limited
from forerun.spaces.schedules import programs_of as written_programs_of
from forerun.spaces.schedules.interleaved import numbered, peak_in_flight_factor
from forerun.spaces.strategies import Schedule

SHAPES = {
    Schedule.ONE_F_ONE_B: [(1, 1, 3), (2, 1, 1), (4, 1, 2), (4, 1, 8), (7, 1, 9)],
    Schedule.GPIPE: [(2, 1, 1), (4, 1, 2), (4, 1, 8), (7, 1, 9)],
    Schedule.ZB_H1: [(2, 1, 1), (4, 1, 2), (4, 1, 8), (7, 1, 9)],
    Schedule.INTERLEAVED: [(2, 2, 2), (4, 3, 4), (4, 2, 12), (5, 4, 15)],
    Schedule.ZB_V: [(2, 2, 1), (4, 2, 3), (4, 2, 8), (5, 2, 20)],
    Schedule.DUALPIPE: [(2, 1, 4), (4, 1, 8), (4, 1, 14), (8, 1, 16), (10, 1, 40)],
}
CASES = [(schedule, PipelineShape(pp=p, vpp=v, microbatches=m)) for schedule in SHAPES for p, v, m in SHAPES[schedule]]


Programs = list[list[Action]]


def programs_of(schedule: int, shape: PipelineShape) -> Programs:
    return [list(program) for program in written_programs_of(schedule, shape)]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0].name}-{case[1].pp}-{case[1].vpp}-{case[1].microbatches}")
def case(request: pytest.FixtureRequest) -> tuple[Schedule, PipelineShape, Programs]:
    schedule, shape = request.param
    return schedule, shape, programs_of(schedule, shape)


def broken_laws(shape: PipelineShape, programs: Programs) -> list[str]:
    """Return every law of the contract that the programs break; knows no schedule."""
    laws = [] if len(programs) == shape.pp else [f"{len(programs)} programs for {shape.pp} pipeline ranks"]
    seen: Counter[tuple[Pass, int, int]] = Counter()
    home: dict[tuple[int, int], int] = {}
    for device, program in enumerate(programs):
        for kind, microbatch, chunk, _ in program:
            seen[kind, microbatch, chunk] += 1
            if home.setdefault((microbatch, chunk), device) != device:
                laws.append(f"microbatch {microbatch} meets virtual stage {chunk} on two devices")
    for microbatch in range(shape.microbatches):
        for chunk in range(shape.chunks):
            counts = tuple(seen.pop((kind, microbatch, chunk), 0) for kind in Pass)
            if counts not in ((1, 1, 0, 0), (1, 0, 1, 1)):
                laws.append(f"microbatch {microbatch}, virtual stage {chunk}: passes {counts}")
    laws += [f"stray action {action}" for action in seen]
    return laws + stuck(shape, programs)


def stuck(shape: PipelineShape, programs: Programs) -> list[str]:
    """Run the programs without times; return what never gets its inputs."""
    done: set[tuple[int, int, int]] = set()
    place, moved = [0] * len(programs), True
    while moved:
        moved = False
        for device, program in enumerate(programs):
            while place[device] < len(program):
                step = program[place[device] :][: 1 + program[place[device]].interwoven]
                if not all(need in done for action in step for need in needs(shape, action)):
                    break
                for kind, microbatch, chunk, _ in step:
                    made = Pass.INPUT_GRADIENT if kind == Pass.BACKWARD else kind
                    done.add((made, microbatch, chunk))
                place[device] += len(step)
                moved = True
    return [f"{programs[d][at]} never starts" for d, at in enumerate(place) if at < len(programs[d])]


def needs(shape: PipelineShape, action: Action) -> list[tuple[int, int, int]]:
    kind, microbatch, chunk, _ = action
    if kind == Pass.FORWARD:
        return [(Pass.FORWARD, microbatch, chunk - 1)] if chunk else []
    if kind == Pass.WEIGHT_GRADIENT:
        return [(Pass.INPUT_GRADIENT, microbatch, chunk)]
    above = [(Pass.INPUT_GRADIENT, microbatch, chunk + 1)] if chunk + 1 < shape.chunks else []
    return [(Pass.FORWARD, microbatch, chunk), *above]


def most_in_flight(program: list[Action], *, until: tuple[Pass, ...]) -> int:
    """Return the most (microbatch, virtual stage) pairs that wait for one of the passes ``until`` at one time."""
    held = most = 0
    for kind, *_ in program:
        held += (kind == Pass.FORWARD) - (kind in until)
        most = max(most, held)
    return most


def test_programs_keep_the_contract(case: tuple[Schedule, PipelineShape, Programs]) -> None:
    _, shape, programs = case

    assert broken_laws(shape, programs) == []


def test_backward_stands_behind_forward(case: tuple[Schedule, PipelineShape, Programs]) -> None:
    for program in case[2]:
        place = {action[:3]: number for number, action in enumerate(program)}
        for (kind, microbatch, chunk), number in place.items():
            if kind in (Pass.BACKWARD, Pass.INPUT_GRADIENT):
                assert place[Pass.FORWARD, microbatch, chunk] < number
            if kind == Pass.WEIGHT_GRADIENT:
                assert place[Pass.INPUT_GRADIENT, microbatch, chunk] < number


def test_interwoven_actions_are_a_forward_with_a_backward_behind_it(
    case: tuple[Schedule, PipelineShape, Programs],
) -> None:
    for program in case[2]:
        for number, action in enumerate(program):
            if action.interwoven:
                assert action.kind == Pass.FORWARD
                assert program[number + 1].kind in (Pass.BACKWARD, Pass.INPUT_GRADIENT)


def test_no_more_is_in_flight_than_memory_counts(case: tuple[Schedule, PipelineShape, Programs]) -> None:
    """Until the input gradient (ZB-H1: the weight gradient, which the core counts); in units of a device's whole set of
    layers (DualPipe: of both its stages)."""
    schedule, shape, programs = case
    chunks = 2 if schedule == Schedule.DUALPIPE else shape.vpp
    stages = np.arange(shape.pp, dtype=np.float64)
    arrays = (np.full(shape.pp, float(n)) for n in (schedule, shape.pp, shape.vpp, shape.microbatches))
    kinds, pp, vpp, microbatches = arrays
    counted = in_flight(kinds, stages, pp, vpp, microbatches)
    for program, most in zip(programs, counted, strict=True):
        last = Pass.WEIGHT_GRADIENT if schedule == Schedule.ZB_H1 else Pass.INPUT_GRADIENT
        held = most_in_flight(program, until=(Pass.BACKWARD, last)) / chunks
        if schedule in (Schedule.ZB_V, Schedule.DUALPIPE):
            assert held <= most
        else:
            assert held == most


@pytest.mark.parametrize(("schedule", "shape"), CASES)
def test_weight_gradients_never_wait_for_more_than_pp_microbatches(schedule: Schedule, shape: PipelineShape) -> None:
    """The memory law of the zero-bubble family (arXiv 2401.10241, section 2.2; arXiv 2405.15362, section 4)."""
    if schedule in (Schedule.ZB_H1, Schedule.ZB_V):
        for program in programs_of(schedule, shape):
            held = most_in_flight(program, until=(Pass.BACKWARD, Pass.WEIGHT_GRADIENT))
            assert held <= shape.pp * shape.vpp


def test_the_checker_finds_broken_programs() -> None:
    shape = PipelineShape(pp=2, vpp=1, microbatches=2)
    good = programs_of(Schedule.ONE_F_ONE_B, shape)

    assert broken_laws(shape, [good[0][:-1], good[1]])
    assert broken_laws(shape, [[*good[0], good[0][0]], good[1]])
    assert broken_laws(shape, [good[0][::-1], good[1]])
    assert broken_laws(shape, [good[0]])


def test_every_schedule_of_the_axis_is_there() -> None:
    assert set(SCHEDULES) == set(Schedule) == set(SHAPES)


@pytest.mark.parametrize(
    ("schedule", "shape", "law"),
    [
        (Schedule.INTERLEAVED, PipelineShape(pp=4, vpp=2, microbatches=6), "a multiple of 4 microbatches"),
        (Schedule.INTERLEAVED, PipelineShape(pp=4, vpp=1, microbatches=8), "vpp > 1"),
        (Schedule.ZB_V, PipelineShape(pp=4, vpp=1, microbatches=8), "vpp=2"),
        (Schedule.DUALPIPE, PipelineShape(pp=3, vpp=1, microbatches=8), "an even pp"),
        (Schedule.DUALPIPE, PipelineShape(pp=4, vpp=1, microbatches=6), "at least 8 microbatches"),
        (Schedule.GPIPE, PipelineShape(pp=4, vpp=2, microbatches=6), "vpp=1"),
    ],
)
def test_shapes_without_an_order_are_refused(schedule: Schedule, shape: PipelineShape, law: str) -> None:
    with pytest.raises(RequestError, match=law):
        programs_of(schedule, shape)


def test_a_shape_has_at_least_one_of_each() -> None:
    with pytest.raises(RequestError, match="microbatches must be at least 1, but got microbatches=0"):
        PipelineShape(pp=2, vpp=1, microbatches=0)


@pytest.mark.parametrize(
    ("pp", "layers"), [(4, (2, 1, 1)), (4, (1, 1, 2)), (2, (3, 1, 2, 1, 1)), (8, (1, 2)), (8, (2, 2, 1, 1))]
)
def test_unequal_chunks_keep_at_most_what_memory_counts(pp: int, layers: tuple[int, ...]) -> None:
    """Layers in flight, played from the list of passes of each device."""
    shape = PipelineShape(pp=pp, vpp=len(layers), microbatches=6 * pp)
    for stage, program in enumerate(programs_of(Schedule.INTERLEAVED, shape)):
        kept = most = 0
        for kind, _, chunk, _ in program:
            kept += layers[chunk // pp] * (1 if kind == Pass.FORWARD else -1)
            most = max(most, kept)
        warm_up = 2 * (pp - stage - 1) + (len(layers) - 1) * pp + 1
        assert peak_in_flight_factor(layers, pp, stage, 0) * warm_up * sum(layers) / len(layers) == pytest.approx(most)


@given(limits=st.lists(st.integers(1, 9), min_size=1, max_size=6), count=st.integers(1, 12))
def test_limits_in_flight_keep_the_contract_and_themselves(limits: list[int], count: int) -> None:
    shape = PipelineShape(pp=len(limits), vpp=1, microbatches=count)
    programs = [list(program) for program in limited(shape, limits)]

    assert broken_laws(shape, programs) == []
    for limit, program in zip(limits, programs, strict=True):
        assert most_in_flight(program, until=(Pass.BACKWARD,)) <= limit


@pytest.mark.parametrize(
    ("limits", "vpp", "law"), [([2, 1], 2, "vpp=1"), ([2], 1, "one limit for each of 2"), ([2, 0], 1, "at least 1")]
)
def test_limits_that_cannot_be(limits: list[int], vpp: int, law: str) -> None:
    with pytest.raises(RequestError, match=law):
        limited(PipelineShape(pp=2, vpp=vpp, microbatches=4), limits)


def test_a_program_is_the_same_whenever_it_is_gone_through(case: tuple[Schedule, PipelineShape, Programs]) -> None:
    schedule, shape, programs = case
    again = written_programs_of(schedule, shape)

    assert [list(program) for program in again] == [list(program) for program in again] == programs


@pytest.mark.parametrize("pp, vpp, microbatches", SHAPES[Schedule.INTERLEAVED])
def test_interleaved_programs_as_numbers(pp: int, vpp: int, microbatches: int) -> None:
    shape = PipelineShape(pp=pp, vpp=vpp, microbatches=microbatches)
    for stage, program in enumerate(programs_of(Schedule.INTERLEAVED, shape)):
        written = [
            (action.chunk + pp * vpp * (action.kind == Pass.BACKWARD)) * microbatches + action.microbatch
            for action in program
        ]
        assert numbered(shape, stage).tolist() == written
