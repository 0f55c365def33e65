"""Peak memory without times is that of the scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import candidates, contexts

from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.simulator.core.score import fits, peaks
from forerun.spaces.strategies import parse_strategy, table_of


@settings(max_examples=tries(25))
@given(st.data())
def test_peaks_are_those_of_scores(data: st.DataObject) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 25))
    scores = score(context, table)
    assert np.array_equal(fits(context, table), scores.fits)
    if not table.stage_choices:
        assert np.array_equal(peaks(context, table), scores.peak_memory_bytes)


@pytest.mark.parametrize("switches", [{"optimizer-offload": "on", "activation-offload": "on"}, {"optimizer": "muon"}])
def test_racks_and_switches_change_no_peak_that_scores_do_not_have(switches: dict[str, str]) -> None:
    request = Request(
        model="gpt-oss-120b", cluster="gb200-nvl72", gpus="144", global_batch=288, seq_len=4096, switches=switches
    )
    context = resolve(request).context
    texts = [
        f"tp{tp} pp2 dp{72 // tp} ep{ep} mbs1 zero1 sp vpp{vpp} schedule={schedule} with={on}"
        for tp in (1, 4)
        for ep in (2, 16)
        for vpp, schedule in ((1, "1f1b"), (3, "interleaved"))
        for on in ("tp-comm-overlap", "moe-overlap")
    ]
    table = table_of(list(map(parse_strategy, texts)))
    assert np.array_equal(peaks(context, table), score(context, table).peak_memory_bytes)
