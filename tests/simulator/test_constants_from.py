"""Whose compute constants a device has."""

import pytest

from forerun.simulator.costs.efficiency import constants_from
from forerun.spaces.clusters.device import load_device


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("a100-sxm4-80", "own"),
        ("v100-sxm2-32", "lent"),
        ("gh200-96", "lent"),
        ("mi300x", "foreign"),
        ("ascend-910b", "foreign"),
        ("gaudi3", "foreign"),
        ("tpu-v5e", "foreign"),
        ("tpu-v5p", "foreign"),
    ],
)
def test_constants_are_of_the_device_of_its_architecture_or_of_neither(device: str, expected: str) -> None:
    assert constants_from(load_device(device)) == expected
