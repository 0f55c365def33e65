"""Measured shapes take what they took; elsewhere the fitted surface takes the level of its measured neighbours."""

import numpy as np
import pytest
from forerun_examples import request, small_cluster, small_device
from forerun_machines import some_strategies, times_of

from forerun.simulator.costs import collective_time_s, gemm_time_s, stream_operator_time_s
from forerun.simulator.costs.measured import MeasuredCosts, QueryRecorder, Samples
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context


def samples(shapes: list[tuple[float, ...]], seconds: list[float], fitted: list[float]) -> Samples:
    return Samples(np.array(shapes, dtype=float), np.array(seconds), np.array(fitted))


def fitted_gemm(m: float, n: float, k: float) -> float:
    return float(gemm_time_s(small_device(), "bf16", m, n, k))


def test_a_measured_shape_takes_what_it_took() -> None:
    costs = MeasuredCosts({"gemm forward bf16": samples([(512, 512, 512, 1)], [3e-3], [fitted_gemm(512, 512, 512)])})
    device = small_device(measured=costs)
    assert gemm_time_s(device, "bf16", 512, 512, 512) == pytest.approx(3e-3)
    assert gemm_time_s(device, "bf16", 512, 512, 0) == 0.0


def test_gaps_keep_the_form_of_the_surface() -> None:
    twice = {
        "gemm forward bf16": samples(
            [(512, 512, 512, 1)], [2 * fitted_gemm(512, 512, 512)], [fitted_gemm(512, 512, 512)]
        )
    }
    device = small_device(measured=MeasuredCosts(twice))
    for m, n, k in ((1024, 4096, 256), (64, 64, 8192)):
        assert gemm_time_s(device, "bf16", m, n, k) == pytest.approx(2 * fitted_gemm(m, n, k))


def test_nearer_shapes_count_more() -> None:
    near, far = fitted_gemm(512, 512, 512), fitted_gemm(16384, 16384, 16384)
    device = small_device(
        measured=MeasuredCosts(
            {"gemm forward bf16": samples([(512, 512, 512, 1), (16384,) * 3 + (1,)], [3 * near, far], [near, far])}
        )
    )
    ratio = float(gemm_time_s(device, "bf16", 512, 512, 1024)) / fitted_gemm(512, 512, 1024)
    assert 2.5 < ratio < 3.0


def test_unmeasured_operators_take_the_level_of_their_family() -> None:
    one = fitted_gemm(512, 512, 512)
    device = small_device(
        measured=MeasuredCosts({"gemm forward bf16": samples([(512, 512, 512, 1)], [4 * one], [one])})
    )
    plain = small_device()
    backward = [float(gemm_time_s(d, "bf16", 256, 256, 256, kind="data_gradient")) for d in (device, plain)]
    assert backward[0] == pytest.approx(4 * backward[1])
    norms = [float(stream_operator_time_s(d, "rmsnorm", 1e6)) for d in (device, plain)]
    assert norms[0] == norms[1]


def test_collectives_in_a_node_say_nothing_of_the_network() -> None:
    from dataclasses import replace

    plain = small_cluster()
    inside = float(collective_time_s(plain, "all_reduce", 1e6, 8.0, 1.0))
    outside = float(collective_time_s(plain, "all_reduce", 1e6, 4.0, 8.0))
    costs = MeasuredCosts({"all_reduce node": samples([(1e6, 8, 1)], [5 * inside], [inside])})
    measured = replace(plain, measured=costs)
    assert collective_time_s(measured, "all_reduce", 1e6, 8.0, 1.0) == pytest.approx(5 * inside)
    both = collective_time_s(measured, "all_reduce", np.array([1e6, 1e6]), np.array([8.0, 4.0]), np.array([1.0, 8.0]))
    assert both[0] == pytest.approx(5 * inside)
    assert both[1] == pytest.approx(5 * outside)  # the family's level, where the network was not measured
    assert collective_time_s(measured, "all_reduce", 1e6, 1.0) == 0.0


def test_recording_changes_nothing_and_a_full_profile_reproduces_it() -> None:
    """Everything that a request asks for, measured to take what the surface says: the same steps."""
    from dataclasses import replace

    context, recorder, links = request(), QueryRecorder(), QueryRecorder()

    def carrying(device_costs: object, cluster_costs: object) -> Context:
        cluster = replace(context.cluster, measured=cluster_costs)  # type: ignore[arg-type]
        return replace(context, cluster=replace(cluster, device=replace(cluster.device, measured=device_costs)))  # type: ignore[arg-type]

    plain = times_of(context, some_strategies())
    assert times_of(carrying(recorder, links), some_strategies()) == plain

    def costs(asked: QueryRecorder, factor: float) -> MeasuredCosts:
        return MeasuredCosts(
            {
                name: samples(list(shapes), [factor * s for s in shapes.values()], list(shapes.values()))
                for name, shapes in asked.asked.items()
            }
        )

    same = times_of(carrying(costs(recorder, 1.0), costs(links, 1.0)), some_strategies())
    np.testing.assert_allclose(same, plain, rtol=1e-12)
    slower = times_of(carrying(costs(recorder, 3.0), costs(links, 3.0)), some_strategies())
    assert all(after > before for after, before in zip(slower, plain, strict=True))


@pytest.mark.parametrize("seconds", [1e-300, 1e9])
def test_seconds_beyond_reason_are_refused(seconds: float) -> None:
    with pytest.raises(RequestError, match=r"gemm forward bf16 of shape .* more than 1e\+06 times apart"):
        MeasuredCosts({"gemm forward bf16": samples([(512, 512, 512, 1)], [seconds], [1e-5])})
