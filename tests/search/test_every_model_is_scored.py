"""Every model of the catalogue has a step and a peak under every kind of recompute, whatever layers it is made of."""

import numpy as np
import pytest

from forerun.search.request.kinds import TRANSFORMERS, kind_named
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.spaces.models import model_names


@pytest.mark.parametrize("framework", ["generic", "torchtitan"])
@pytest.mark.parametrize("model", [name for name in model_names() if kind_named(name) is TRANSFORMERS])
def test_with_every_recompute(model: str, framework: str) -> None:
    setting = resolve(
        Request(
            model=model,
            cluster="dgx-h100",
            gpus="8",
            global_batch=8,
            seq_len=512,
            framework=framework,
            overrides={"tp": ["1", "2"], "pp": ["1"], "cp": ["1"], "mbs": ["1"]},
        )
    )
    space = setting.space()
    table, _ = space.table(0, space.size)
    scores = score(setting.context, table)

    assert len(table)
    assert np.isfinite(scores.step_time_s).all() and (scores.step_time_s > 0).all()
    assert np.isfinite(scores.peak_memory_bytes).all() and (scores.peak_memory_bytes > 0).all()
