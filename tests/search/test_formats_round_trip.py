"""What a format expresses it reads back the same; what it refuses it replaces by something it expresses."""

import dataclasses

import pytest
from forerun_launches import launches
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.search.formats import Format, Launch, import_texts, writable
from forerun.search.formats.software import assumed
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import all_switches, load_framework, switched
from forerun.spaces.frameworks.switches import SHARE

NUMBER = "0.25"
"""A share as a setting."""

SEVERAL = settings(max_examples=tries(40), suppress_health_check=[HealthCheck.too_slow])
EACH = pytest.mark.parametrize("item", writable(), ids=lambda item: item.name)


@EACH
@SEVERAL
@given(launch=launches(), data=st.data())
def test_import_of_an_export_is_the_strategy(item: Format, launch: Launch, data: st.DataObject) -> None:
    launch = dataclasses.replace(launch, switches=_drawn(item, data))
    try:
        files = item.express(launch)
    except RequestError:
        near = item.nearest(launch)
        if near is None:
            assert any(limit.fix is None and limit.broken(launch) for limit in item.limits)
            return
        assert near != launch
        launch, files = near, item.express(near)

    found = import_texts(files)

    assert found.strategy == launch.strategy
    assert not found.unknown
    assert found.workload["global_batch"] == launch.workload.global_batch
    assert found.workload["gpus"] == launch.strategy.devices
    assert found.workload["seq_len"] == launch.workload.seq_len
    assert found.workload["precision"] == launch.workload.precision
    if item.framework is not None and item.name != "accelerate-megatron":
        assert found.switches == assumed(launch, item.framework)


def _drawn(item: Format, data: st.DataObject) -> dict[str, str]:
    """Draw settings of the switches that a format has words for, which go with each other."""
    if item.framework is None:
        return {}
    profile = load_framework(item.framework)
    drawn = {}
    for name, setting in profile.switches:
        support = all_switches()[name].support(profile)
        assert support is not None
        flags = (NUMBER if flag == SHARE else flag for flag in support.flags)
        drawn[name] = data.draw(st.sampled_from(sorted({setting, support.unset, *flags})), label=name)
    try:
        switched(profile, drawn)
    except RequestError:
        return {}
    return drawn


@EACH
@SEVERAL
@given(launch=launches())
def test_a_refusal_names_reasons_and_the_nearest(item: Format, launch: Launch) -> None:
    broken = [limit for limit in item.limits if limit.broken(launch)]
    if not broken:
        return

    with pytest.raises(RequestError) as caught:
        item.express(launch)

    near = item.nearest(launch)
    assert near is None or str(near.strategy) in str(caught.value)
    assert near is not None or any(limit.fix is None for limit in item.limits)
    assert all(limit.reason(launch) in str(caught.value) for limit in broken)


def test_most_formats_express_most_plain_strategies() -> None:
    """The property above would hold for a format that refuses everything."""
    from forerun_launches import DENSE

    from forerun.spaces.strategies import parse_strategy
    from forerun.spaces.workload import Workload

    expressed = {
        "megatron-lm": "tp4 pp4 dp4 mbs1 vpp2 zero1 sp recompute=selective schedule=interleaved cp2",
        "megatron-bridge": "tp4 pp4 dp4 mbs1 zero1 sp placement=tp-cp-ep-pp-dp layers=5,6,7,6",
        "torchtitan-toml": "tp4 pp4 dp4 mbs1 vpp3 zero2 sp recompute=full schedule=interleaved",
        "torchtitan": "tp4 pp4 dp4 mbs1 vpp2 zero3 schedule=zb-v cp2",
        "torchtitan-0.3": "tp4 pp4 dp4 mbs2 zero3 sp schedule=gpipe layers=5,6,7,6",
        "deepspeed": "tp4 dp4 mbs2 zero3 recompute=full pp1",
        "accelerate-fsdp": "tp4 dp4 cp2 mbs2 zero3 recompute=full pp1",
        "accelerate-megatron": "tp4 pp4 dp4 cp2 mbs2 zero1 sp recompute=full layers=5,5,5,9",
        "nanotron": "tp4 pp4 dp4 cp2 mbs2 zero1 sp recompute=full schedule=gpipe split=by-cost",
        "gpt-neox": "tp4 pp4 dp4 mbs2 zero1 sp recompute=full",
        "llama-factory": "dp16 mbs2 zero3 recompute=full pp1",
        "axolotl": "tp2 dp4 cp2 mbs1 zero2 shard=4 pp1",
        "maxtext": "tp4 pp4 dp4 cp2 mbs2 vpp2 zero3 schedule=interleaved recompute=selective",
        "mindspeed": "tp4 pp4 dp4 cp2 mbs1 vpp2 zero1 sp recompute=selective schedule=interleaved",
        "olmo-core": "tp4 pp4 dp4 mbs2 vpp2 zero2 shard=2 sp schedule=interleaved recompute=full",
        "torch": "dp16 mbs2 zero3 pp1",
        "forerun": "tp4 pp4 dp4 mbs1 schedule=dualpipe",
    }
    workload = Workload(global_batch=64, seq_len=4096)

    assert {item.name for item in writable()} == set(expressed)
    for item in writable():
        strategy = parse_strategy(expressed[item.name])
        launch = Launch(strategy=strategy, model=DENSE, workload=workload, devices_per_node=8)
        assert import_texts(item.express(launch)).strategy == strategy
