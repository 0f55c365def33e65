"""Electric power: bounded by the device's limit, higher the more of a step computes, known only with a limit."""

from dataclasses import replace

import pytest

from forerun.search import search
from forerun.simulator.costs.power import COMPUTING, WAITING, mean_power_w, power_limit_w
from forerun.spaces.clusters import load_cluster


def test_waiting_and_computing_are_the_bounds() -> None:
    assert mean_power_w(700, {"compute": 1.0, "bubble": 0.0}) == pytest.approx(700 * COMPUTING)
    assert mean_power_w(700, {"compute": 0.0, "data": 2.0}) == pytest.approx(700 * WAITING)
    powers = [mean_power_w(400, {"compute": 1.0, "recompute": 0.3, "bubble": wait}) for wait in (0.0, 0.2, 1.0)]
    assert powers == sorted(powers, reverse=True)


def test_a_network_of_convolutions_computes_forward_and_backward() -> None:
    waits = {"forward": 0.0, "backward": 0.0, "update": 0.0, "input": 1.0}
    assert mean_power_w(300, waits) < mean_power_w(300, {**waits, "forward": 1.0, "backward": 2.0})


def test_a_device_without_a_limit_has_no_power() -> None:
    cluster = load_cluster("dgx-h100")
    assert power_limit_w(cluster) == 700
    assert power_limit_w(replace(cluster, device=replace(cluster.device, watts=None))) is None


def test_olmo_2_trains_at_85_percent_of_the_limit() -> None:
    """Morrison et al. (arXiv 2503.05804) log over 600 W of 700 in steps of a model shaped as Llama 2 7B on H100s."""
    row = search("llama2-7b", cluster="dgx-h100", gpus=128, global_batch=1024, seq_len=4096, framework="fsdp").rows[0]
    assert row.watts_per_gpu is not None
    assert 0.80 < row.watts_per_gpu / 700 < 0.92
