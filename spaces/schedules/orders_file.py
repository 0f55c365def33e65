"""Orders of passes in the CSV format of PyTorch's pipelining, with a row per pipeline rank.

A cell is one pass, such as ``2F0``: the virtual stage in model order, the kind of pass, and the microbatch. ``F`` is a
forward pass, ``B`` an entire backward pass, ``I`` and ``W`` its gradients of inputs and of weights;
``(2F1;5B0)OVERLAP_F_B`` runs two passes kernel by kernel. Empty cells are bubbles, which forerun ignores, since its
bubbles follow from times. ``torch.distributed.pipelining`` reads the same file (torchtitan:
``pipeline_parallel_schedule_csv``).
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from forerun.spaces.errors import RequestError
from forerun.spaces.escaping import quoted
from forerun.spaces.reading import read_text
from forerun.spaces.schedules.contract import Action, Pass, PipelineShape, Programs

LETTERS = {Pass.FORWARD: "F", Pass.BACKWARD: "B", Pass.INPUT_GRADIENT: "I", Pass.WEIGHT_GRADIENT: "W"}
_KINDS = {letter: kind for kind, letter in LETTERS.items()}
_CELL = re.compile(r"(\d{1,6})([FBIW])(\d{1,9})")
_PAIR = re.compile(r"\(([^;()]+);([^;()]+)\)OVERLAP_F_B")
MOST_BYTES = 16 << 20


def orders_text(programs: Programs) -> str:
    """Return the CSV of programs, one row per pipeline rank."""
    return "".join(",".join(_cells(list(program))) + "\n" for program in programs)


def _cells(program: Sequence[Action]) -> list[str]:
    cells = []
    for number, action in enumerate(program):
        if action.interwoven:
            cells.append(f"({_cell(action)};{_cell(program[number + 1])})OVERLAP_F_B")
        elif not number or not program[number - 1].interwoven:
            cells.append(_cell(action))
    return cells


def _cell(action: Action) -> str:
    return f"{action.chunk}{LETTERS[action.kind]}{action.microbatch}"


def read_orders(path: Path, shape: PipelineShape, chunks_of_rank: Sequence[Sequence[int]]) -> Programs:
    """Return the programs of a CSV for a pipeline; ``chunks_of_rank`` [P][V]: virtual stages of each rank.

    Raises:
        RequestError: the file cannot be read, a cell is not a pass, a pass is missing, duplicate or on a wrong rank, or
            ranks wait for each other.
    """
    try:
        rows = [row for row in csv.reader(read_text(path, most=MOST_BYTES, kind="orders").splitlines()) if any(row)]
    except csv.Error:
        raise RequestError(f"{path}: not a CSV table") from None
    if len(rows) != shape.pp:
        raise RequestError(f"{path} has {len(rows)} rows for {shape.pp} pipeline ranks; write one row for each")
    programs = [_program(path, rank, row) for rank, row in enumerate(rows)]
    _check_passes(path, shape, programs, chunks_of_rank)
    _check_ends(path, shape, programs)
    return programs


def _program(path: Path, rank: int, row: Sequence[str]) -> list[Action]:
    """Return the passes of one row."""
    program: list[Action] = []
    for place, cell in enumerate(row):
        word = cell.strip()
        pair = _PAIR.fullmatch(word)
        read = [_CELL.fullmatch(one.strip()) for one in (pair.groups() if pair else (word,) if word else ())]
        actions = [Action(_KINDS[one[2]], int(one[3]), int(one[1])) for one in read if one]
        if len(actions) < len(read) or (pair and [action.kind for action in actions] != [Pass.FORWARD, Pass.BACKWARD]):
            raise RequestError(
                f"{path}, row {rank + 1}, cell {place + 1}: a pass is a virtual stage, F, B, I or W and a microbatch, "
                f"as 2F0 or (2F1;5B0)OVERLAP_F_B, but got {quoted(word)}"
            )
        program += [actions[0]._replace(interwoven=True), actions[1]] if pair else actions
    return program


def _check_passes(
    path: Path, shape: PipelineShape, programs: Sequence[Sequence[Action]], chunks_of_rank: Sequence[Sequence[int]]
) -> None:
    """Refuse orders that do not run every pass exactly once, on the rank of its virtual stage."""
    seen: dict[tuple[Pass, int, int], int] = {}
    for rank, program in enumerate(programs):
        for action in program:
            where = f"{path}, row {rank + 1}: {_cell(action)}"
            if action.chunk >= shape.chunks or action.microbatch >= shape.microbatches:
                raise RequestError(
                    f"{where} is none of {shape.chunks} virtual stages and {shape.microbatches} microbatches of this "
                    "strategy and global batch; both are counted from 0"
                )
            if action.chunk not in chunks_of_rank[rank]:
                expected = " and ".join(map(str, chunks_of_rank[rank]))
                raise RequestError(f"{where} runs on another rank: by its schedule= the strategy has {expected} here")
            key = (action.kind, action.microbatch, action.chunk)
            if key in seen:
                raise RequestError(f"{where} runs a second time; the first is in row {seen[key] + 1}")
            seen[key] = rank
    for microbatch in range(shape.microbatches):
        for chunk in range(shape.chunks):
            ranks = {kind: seen.get((kind, microbatch, chunk)) for kind in Pass}
            kinds = {kind for kind, rank in ranks.items() if rank is not None}
            if (
                kinds
                not in (
                    {Pass.FORWARD, Pass.BACKWARD},
                    {Pass.FORWARD, Pass.INPUT_GRADIENT, Pass.WEIGHT_GRADIENT},
                )
                or len({ranks[kind] for kind in kinds}) > 1
            ):
                passes = ", ".join(f"{chunk}{LETTERS[kind]}{microbatch}" for kind in sorted(kinds)) or "none"
                raise RequestError(
                    f"{path}: microbatch {microbatch} must pass virtual stage {chunk} forward (F) and backward (B, or "
                    f"I and W) on one rank, but the passes are {passes}"
                )


def _check_ends(path: Path, shape: PipelineShape, programs: Sequence[Sequence[Action]]) -> None:
    """Check, without times, that the programs reach their ends."""
    done: set[tuple[bool, int, int]] = set()
    place = [0] * shape.pp
    moved = True
    while moved:
        moved = False
        for rank, program in enumerate(programs):
            while place[rank] < len(program) and _ready(program, place[rank], shape, done):
                taken = 2 if program[place[rank]].interwoven else 1
                for action in program[place[rank] : place[rank] + taken]:
                    if action.kind != Pass.WEIGHT_GRADIENT:
                        done.add((action.kind == Pass.FORWARD, action.microbatch, action.chunk))
                place[rank] += taken
                moved = True
    stuck = [
        f"row {rank + 1} at {_cell(program[place[rank]])}"
        for rank, program in enumerate(programs)
        if place[rank] < len(program)
    ]
    if stuck:
        raise RequestError(f"{path}: ranks wait for each other for ever: {', '.join(stuck[:8])}")


def _ready(program: Sequence[Action], place: int, shape: PipelineShape, done: set[tuple[bool, int, int]]) -> bool:
    """Check whether the next pass of a rank, and the one interwoven with it, have all their inputs."""
    action = program[place]
    microbatch, chunk = action.microbatch, action.chunk
    if action.kind == Pass.FORWARD:
        ready = chunk == 0 or (True, microbatch, chunk - 1) in done
    elif action.kind == Pass.WEIGHT_GRADIENT:
        ready = (False, microbatch, chunk) in done
    else:
        ready = (True, microbatch, chunk) in done
        ready &= chunk == shape.chunks - 1 or (False, microbatch, chunk + 1) in done
    return ready and (not action.interwoven or _ready(program, place + 1, shape, done))
