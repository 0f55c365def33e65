"""The number of GPUs beyond which more of them add little is named."""

import dataclasses

import pytest

from forerun.search import search
from forerun.search.answer.notes.contract import NoteSearch
from forerun.search.answer.notes.gpu_counts import KNEE, knee_note
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve


def test_networks_that_stop_scaling_name_their_knee() -> None:
    board = search("dlrm-516m", cluster="dgx-a100-80", gpus="8..64", global_batch=65536)
    note = next(note for note in board.notes if note.startswith(KNEE))
    assert board.rows[0].gpus == 64 and "on 8 GPUs" in note


@pytest.mark.parametrize(("throughputs", "knee"), [((8, 15, 28), None), ((8, 15, 17), 16), ((8, 9, 10), 8)])
def test_added_gpus_pay_from_half_of_linear_scaling(throughputs: tuple[int, ...], knee: int | None) -> None:
    asked = Request(model="llama3-8b", cluster="dgx-h100", gpus="8..32", global_batch=64, seq_len=4096)
    row = search(asked.model, cluster=asked.cluster, gpus="8", global_batch=64, seq_len=4096, top=1).rows[0]
    rows = [
        dataclasses.replace(row, gpus=gpus, throughput=float(rate))
        for gpus, rate in zip((32, 16, 8), reversed(throughputs), strict=True)
    ]
    notes = knee_note(resolve(asked), rows, NoteSearch())
    assert notes == () if knee is None else f"on {knee} GPUs has" in notes[0]
