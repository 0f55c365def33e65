"""The parts of a step add up to it, those of the peak to the peak, and none is negative."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import candidates, contexts

from forerun.simulator import MEMORY_PARTS, TIME_PARTS, score


@settings(max_examples=tries(35))
@given(st.data())
def test_parts_of_time_and_memory(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 25))
    scores = score(context, table)

    assert set(scores.time_s) == set(TIME_PARTS)
    assert set(scores.memory_bytes) == set(MEMORY_PARTS)
    for parts, whole in ((scores.time_s, scores.step_time_s), (scores.memory_bytes, scores.peak_memory_bytes)):
        assert np.all(np.isfinite(whole)) and np.all(whole > 0)
        for name, values in parts.items():
            assert np.all(values >= -1e-12 * whole), name
        np.testing.assert_allclose(sum(parts.values()), whole, rtol=1e-12)
    assert np.all(scores.allocated_bytes <= scores.peak_memory_bytes)
    assert np.all((scores.peak_stage >= 0) & (scores.peak_stage < table.column("pp")))


@settings(max_examples=tries(20))
@given(st.data())
def test_parts_belong_to_the_axes_that_cause_them(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 25))
    time_s = score(context, table).time_s
    axis = {name: table.column(name) for name in ("dp", "tp", "pp", "cp", "ep", "etp", "recompute")}
    tied = context.model.tied_embeddings

    assert not np.any(time_s["tensor"][axis["tp"] == 1])
    assert not np.any(time_s["context"][axis["cp"] == 1])
    if not context.framework.expert_wait_s:  # for counts of tokens, which one rank reads too
        assert not np.any(time_s["expert"][axis["ep"] * axis["etp"] == 1])
    assert not np.any(time_s["pipeline"][axis["pp"] == 1])
    assert np.all(np.abs(time_s["bubble"][axis["pp"] == 1]) < 1e-12)
    assert not np.any(time_s["recompute"][axis["recompute"] == 0])
    lone = (axis["dp"] * axis["cp"] * axis["tp"] == 1) & (tied is False)
    assert np.all(np.abs(time_s["data"][lone]) < 1e-12)  # a difference of equal sums
