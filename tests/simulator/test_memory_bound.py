"""Memory-bound operators: closed forms, the order of fused and eager, and the edges."""

import numpy as np
import pytest

from forerun.simulator.costs import (
    adam_time_s,
    device_efficiency,
    memory_bound_time_s,
    stream_operator,
    stream_operator_time_s,
    stream_operators,
)
from forerun.spaces.clusters.device import load_device
from forerun.spaces.errors import RequestError


def test_time_is_bytes_over_bandwidth_and_a_kernel() -> None:
    device = load_device("a100-sxm4-80")
    stream = device_efficiency(device).stream
    expected = 1e9 / (device.memory_bytes_per_s * stream.memory_share) + 3 * stream.fixed_s
    assert float(memory_bound_time_s(device, 1e9, kernels=3)) == pytest.approx(expected)


def test_arithmetic_counts_where_it_is_slower_than_memory() -> None:
    device = load_device("a100-sxm4-80")
    stream = device_efficiency(device).stream
    expected = 1e12 / (device.compute_units * stream.elements_per_unit_s) + stream.fixed_s
    assert float(memory_bound_time_s(device, 1e9, elements=1e12)) == pytest.approx(expected)


def test_nothing_to_move_takes_no_time() -> None:
    assert memory_bound_time_s(load_device("h100-sxm"), [0.0, 1.0])[0] == 0.0


@pytest.mark.parametrize("name", sorted(stream_operators()))
def test_fusing_never_slows_an_operator_down(name: str) -> None:
    device = load_device("h100-sxm")
    for backward in (False, True):
        fused, eager = (stream_operator_time_s(device, name, 1e7, fused=f, backward=backward) for f in (True, False))
        assert fused <= eager


@pytest.mark.parametrize("name", sorted(stream_operators()))
def test_an_operator_reads_and_writes_at_least_its_tensor(name: str) -> None:
    operator = stream_operator(name)
    for backward in (False, True):
        assert operator.one_pass(fused=True, backward=backward).bytes_per_element >= 3  # one read, one write, 8 bit
        assert operator.one_pass(fused=True, backward=backward).kernels >= 1


def test_operators_take_arrays() -> None:
    device = load_device("h100-sxm")
    sizes = np.array([1e6, 1e7, 1e8])
    together = stream_operator_time_s(device, "rmsnorm", sizes)
    assert together.tolist() == [float(stream_operator_time_s(device, "rmsnorm", size)) for size in sizes]


def test_adam_moves_thirty_bytes_per_parameter_of_mixed_precision() -> None:
    # 4 gradient, 8 read and 8 written of the moments, 4 + 4 of the master weight, 2 of the weight; 13 % overhead.
    device = load_device("a100-sxm4-80")
    stream = device_efficiency(device).stream
    bandwidth = device.memory_bytes_per_s * stream.memory_share
    assert float(adam_time_s(device, 1e9)) == pytest.approx(30 * 1.13e9 / bandwidth + stream.fixed_s)
    assert adam_time_s(device, 1e9, gradient_bytes=2.0) < adam_time_s(device, 1e9)
    assert adam_time_s(device, 1e9, master_weights=False) < adam_time_s(device, 1e9)


def test_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(RequestError, match="layernorm"):
        stream_operator_time_s(load_device("h100-sxm"), "layer_norm", 1.0)
