"""A candidate's score is the same, to the last bit, alone, in any slice and in any order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import candidates, contexts

from forerun.simulator import ScoreTable, score
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework
from forerun.spaces.models import load_model
from forerun.spaces.models.tuning import tuned
from forerun.spaces.strategies import Context, parse_strategy, table_of
from forerun.spaces.workload import Workload


def rows(scores: ScoreTable) -> np.ndarray:
    """Everything that a score says, one row per candidate."""
    columns = [scores.step_time_s, scores.peak_memory_bytes, scores.allocated_bytes, scores.peak_stage, scores.fits]
    columns += [*scores.time_s.values(), *scores.memory_bytes.values()]
    return np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)


@settings(max_examples=tries(25))
@given(st.data())
def test_any_order_and_any_slice(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 25))
    order = np.array(data.draw(st.permutations(range(len(table)))))
    cut = data.draw(st.integers(0, len(table)))
    whole = rows(score(context, table))

    assert np.array_equal(rows(score(context, table.take(order))), whole[order])
    assert np.array_equal(rows(score(context, table.take(slice(cut, None)))), whole[cut:])


@settings(max_examples=tries(12))
@given(st.data())
def test_alone(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 8))
    whole = rows(score(context, table))

    for row in range(len(table)):
        assert np.array_equal(rows(score(context, table.take(slice(row, row + 1)))), whole[row : row + 1])


def test_frozen_experts_are_not_gathered_next_to_sharded_ones() -> None:
    """With zero 3 they are, and cost others of the table nothing."""
    context = Context(
        model=tuned(load_model("mixtral-8x7b"), "16", ()),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=16, seq_len=512),
        framework=load_framework("deepspeed"),
    )
    together = score(context, table_of([parse_strategy(f"dp8 ep4 mbs2 zero{stage}") for stage in (1, 2, 3)]))

    for row, stage in enumerate((1, 2, 3)):
        alone = score(context, table_of([parse_strategy(f"dp8 ep4 mbs2 zero{stage}")]))
        assert np.array_equal(rows(alone)[0], rows(together)[row])
