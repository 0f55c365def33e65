"""Orders that users write: every schedule survives the file, and what could not run is refused by the pass."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from forerun.search.cli import main
from forerun.spaces.errors import RequestError
from forerun.spaces.schedules import PipelineShape, orders_text, programs_of, read_orders
from forerun.spaces.strategies import Schedule, chunks_of_stage

SHAPES = [
    (Schedule.ONE_F_ONE_B, PipelineShape(pp=4, vpp=1, microbatches=6)),
    (Schedule.GPIPE, PipelineShape(pp=3, vpp=1, microbatches=4)),
    (Schedule.INTERLEAVED, PipelineShape(pp=4, vpp=3, microbatches=8)),
    (Schedule.ZB_H1, PipelineShape(pp=4, vpp=1, microbatches=8)),
    (Schedule.ZB_V, PipelineShape(pp=4, vpp=2, microbatches=8)),
    (Schedule.DUALPIPE, PipelineShape(pp=4, vpp=1, microbatches=10)),
]
TWO = PipelineShape(pp=2, vpp=1, microbatches=2)
GOOD = "0F0,0F1,0B0,0B1\n1F0,1B0,,1F1,1B1\n"


def ranks(schedule: Schedule, shape: PipelineShape) -> list[tuple[int, ...]]:
    return [chunks_of_stage(shape.pp, shape.vpp, schedule, rank) for rank in range(shape.pp)]


@pytest.mark.parametrize(("schedule", "shape"), SHAPES, ids=lambda value: getattr(value, "name", ""))
def test_every_schedule_survives_the_file(schedule: Schedule, shape: PipelineShape, tmp_path: Path) -> None:
    programs = [list(program) for program in programs_of(schedule, shape)]
    path = tmp_path / "orders.csv"
    path.write_text(orders_text(programs))
    assert read_orders(path, shape, ranks(schedule, shape)) == programs


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.split("\n")[0], "has 1 rows for 2 pipeline ranks"),
        (lambda text: text.replace("1F1", "1X1"), r"row 2, cell 4: .* got '1X1'"),
        (lambda text: text.replace("1F1", "(1B1;1F1)OVERLAP_F_B"), "a pass is a virtual stage"),
        (lambda text: text.replace("0F1", "0F7"), "0F7 is none of 2 virtual stages and 2 microbatches"),
        (lambda text: text.replace("0F1", "1F1"), "1F1 runs on another rank: by its schedule= the strategy has 0 here"),
        (lambda text: text.replace("0F1", "0F0"), "0F0 runs a second time"),
        (lambda text: text.replace(",0B1", ""), "microbatch 1 must pass virtual stage 0 .* the passes are 0F1"),
        (lambda text: text.replace("0B1", "0I1"), "the passes are 0F1, 0I1"),
        (lambda text: text.replace("0F0,0F1,0B0", "0F0,0B1,0F1,0B0").replace("0B0,0B1", "0B0"), "for ever: row 1 at"),
    ],
)
def test_orders_that_cannot_run(change: Callable[[str], str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text(GOOD)
    assert len(read_orders(path, TWO, [(0,), (1,)])) == 2
    path.write_text(change(GOOD))
    with pytest.raises(RequestError, match=said):
        read_orders(path, TWO, [(0,), (1,)])


REQUEST = ["llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "16", "--seq-len", "2048"]
REQUEST += ["--framework", "generic"]


def test_simulate_runs_the_orders_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GPipe written by hand is GPipe, in time and in memory."""
    path = tmp_path / "gpipe.csv"
    events = ["--fidelity", "events", "--json"]
    simulate = ["simulate", *REQUEST, "--strategy"]
    gpipe, other = "tp2 pp4 dp1 mbs1 sp schedule=gpipe", "tp2 pp4 dp1 mbs1 sp"
    assert main([*simulate, gpipe, "--write-orders", str(path), *events]) == 0
    as_schedule = capsys.readouterr().out
    assert main([*simulate, other, "--orders", str(path), *events]) == 0
    written, known = json.loads(capsys.readouterr().out), json.loads(as_schedule)
    assert written["step_time_s"] == pytest.approx(known["step_time_s"], rel=1e-9)
    assert written["events"] == known["events"]


def test_orders_need_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", *REQUEST, "--strategy", "pp2 dp4", "--orders", str(tmp_path / "x.csv")]) == 2
    assert "--orders needs --fidelity events" in capsys.readouterr().err
