"""The vectorised core is the assignment many times over: what it says of a stage is what the assignment says of it."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import candidates, contexts

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.simulator.assignment.memory import stage_memory
from forerun.simulator.assignment.of_strategy import assign
from forerun.simulator.assignment.step_costs import step_costs
from forerun.simulator.core.staged_passes import stage_passes
from forerun.simulator.layer.times import BLOCK_PARTS
from forerun.simulator.stages.rows import stage_rows
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Schedule, parse_strategy, table_of

EXACT = 1e-9


def without_stall(context: Context) -> Context:
    return dataclasses.replace(context, framework=dataclasses.replace(context.framework, allocator_stall=0.0))


@settings(max_examples=tries(60))
@given(st.data())
@pytest.mark.slow
def test_the_slowest_and_the_fullest_stage_of_the_core_are_ranks_of_the_assignment(data: st.DataObject) -> None:
    context = without_stall(data.draw(contexts()))
    table = data.draw(candidates(context, 4))
    scores = score(dataclasses.replace(context, correction=None), table)
    for row in range(len(table)):
        assignment = assign(context, table.strategy(row))
        costs = step_costs(assignment)
        # A rank of DualPipe runs each of its two stages for half of the microbatches.
        count = assignment.shape.microbatches * (0.5 if assignment.schedule == Schedule.DUALPIPE else 1.0)
        ranks = [
            [count * sum(costs.chunks[chunk].parts[part] for chunk in chunks) for part in BLOCK_PARTS]
            for chunks in assignment.chunks_of_rank
        ]
        core = [scores.time_s[part][row] for part in BLOCK_PARTS]
        peaks_bytes = stage_memory(assignment).peak_bytes

        assert scores.peak_memory_bytes[row] == pytest.approx(peaks_bytes.max(), rel=EXACT)
        assert any(core == pytest.approx(rank, rel=EXACT, abs=EXACT * sum(rank)) for rank in ranks)


@pytest.mark.parametrize("model", ["llama3-8b", "gpt-oss-120b", "deepseek-v3"])
def test_stages_that_differ_are_virtual_stages_of_the_assignment(model: str) -> None:
    request = Request(model=model, cluster="dgx-h100", global_batch=64, seq_len=4096, framework="megatron-lm")
    context = without_stall(resolve(request).context)
    layers = context.model.layer_count
    named = f"{layers - 3 * (layers // 4)},{layers // 4},{layers // 4},{layers // 4}"
    texts = (
        f"tp2/4 pp4 dp8/4 mbs1/2 sp layers={named}",
        f"tp2 pp4 dp8 recompute=full:3,none,selective,full layers={named}",
        f"tp2/8 pp4 dp16/4 mbs1/4 zero1 recompute=full:2,none,full:4,full layers={named}",
    )
    table = table_of([parse_strategy(text) for text in texts])
    rows = stage_rows(context, table)
    passes = stage_passes(context, rows)
    for row in range(len(table)):
        costs = step_costs(assign(context, table.strategy(row)))
        for stage, chunk in enumerate(costs.chunks):
            seconds = (chunk.forward_s, chunk.backward_s, chunk.weight_s)
            vectorised = [values[stage, row] for values in (passes.forward_s, passes.backward_s, passes.weight_s)]

            assert seconds == pytest.approx(vectorised, rel=EXACT)
            assert chunk.parts["host"] == pytest.approx(passes.gap_s[stage, row], rel=EXACT, abs=EXACT * sum(seconds))
            for part in BLOCK_PARTS:
                assert chunk.parts[part] == pytest.approx(passes.parts[part][stage, row], rel=EXACT)


def test_every_layer_is_assigned_once() -> None:
    context = resolve(Request(model="deepseek-v3", cluster="dgx-h100", global_batch=64, seq_len=4096)).context
    assignment = assign(context, parse_strategy("tp8 pp2 dp4 ep4 layers=31,30"))
    (blocks,) = assignment.blocks().values()
    model = context.model

    assert assignment.layer_counts == [31.0, 30.0]
    assert blocks.sum() == model.layer_count + model.mtp_layers + 2
    assert np.array_equal(blocks[-2:], [[1.0, 0.0], [0.0, 1.0]])
    assert [len(devices) for devices in assignment.devices] == [32, 32]


def test_a_split_that_leaves_layers_out_is_refused() -> None:
    context = resolve(Request(model="llama3-8b", cluster="dgx-h100", global_batch=64, seq_len=4096)).context

    with pytest.raises(RequestError, match="splits 30 layers, but the model has 32; use another split"):
        assign(context, parse_strategy("pp3 dp2"))
