"""Time has no natural unit: when every rate and every delay is scaled, every part of the result is scaled alike."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries
from random_requests import candidates, contexts

from forerun.simulator import score
from forerun.simulator.costs import attention, gemm, memory_bound
from forerun.simulator.costs.collectives import rule
from forerun.spaces.strategies import Context


def slowed(value: Any, factor: float, name: str = "") -> Any:
    """Return ``value`` with every duration in it ``factor`` times as long and every rate as much lower.

    What is which follows from the unit in the name: ``..._per_s`` and ``..._per_unit_s`` are rates, other ``..._s``
    durations.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: slowed(getattr(value, f.name), factor, f.name) for f in fields(value)})
    if isinstance(value, dict):
        return {key: slowed(entry, factor, name) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(slowed(entry, factor, name) for entry in value)
    if not isinstance(value, float):
        return value
    if name.endswith(("_per_s", "_per_unit_s")):
        return value / factor
    return value * factor if name.endswith("_s") else value


def slowed_context(context: Context, factor: float) -> Context:
    cluster = replace(context.cluster, spec=None)
    return replace(
        context, cluster=slowed(cluster, factor), framework=slowed(context.framework, factor), model=context.model
    )


@settings(max_examples=tries(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), factor=st.sampled_from([0.125, 4.0, 1024.0]))
def test_random_requests(data: st.DataObject, factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    context = data.draw(contexts())
    table = data.draw(candidates(context, 20))
    before = score(context, table)
    with monkeypatch.context() as patch:
        for module in (gemm, attention, memory_bound):
            known = module.device_efficiency
            patch.setattr(module, "device_efficiency", lambda device, known=known: slowed(known(device), factor))
        patch.setattr(memory_bound, "LAUNCH_S", factor * memory_bound.LAUNCH_S)
        links = rule.constants_of
        patch.setattr(rule, "constants_of", lambda *which: slowed(links(*which), factor))
        after = score(slowed_context(context, factor), table)

    np.testing.assert_allclose(after.step_time_s, factor * before.step_time_s, rtol=1e-9)
    for part, seconds in before.time_s.items():
        scale = factor * before.step_time_s
        assert np.all(np.abs(after.time_s[part] - factor * seconds) <= 1e-9 * scale) or ties(before.time_s), part
    for part, size in before.memory_bytes.items():
        assert np.array_equal(after.memory_bytes[part], size), part


def ties(time_s: Any) -> bool:
    """Whether some stages may tie: those that wait for their host all take as long, whatever they are made of."""
    return bool(np.any(time_s["host"] > 0))
