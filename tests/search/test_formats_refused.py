"""Documents that are no launch file of any tool, and values that no run could have, are refused with one sentence."""

import dataclasses
from typing import Any

import pytest
from launch_files import REFUSED_FILES

from forerun.search.formats import Launch, format_named, import_texts
from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import Workload

DEEP = {
    "c.json": ('{"train_batch_size": ' + '{"a": ' * 5000 + "1" + "}" * 5001, "deep"),
    "c.toml": ("a = " + "[" * 5000 + "]" * 5000, "levels deep"),
    "c.py": ("x = " + "(" * 5000 + ")" * 5000, "not Python"),
    "c.sh": ("A=xxxxxxxxxx\n" + "A=$A$A$A$A$A$A$A$A\n" * 30 + "torchrun p.py --num-layers $A\n", "expand to more"),
}


def refused(files: dict[str, str], says: str, **given: Any) -> None:
    with pytest.raises(RequestError, match=says) as caught:
        import_texts(files, **given)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 700


@pytest.mark.parametrize("name", REFUSED_FILES)
def test_what_cannot_be_read_is_refused_with_one_sentence(name: str) -> None:
    case = REFUSED_FILES[name]
    refused(case["files"], case["says"], **case.get("given", {}))


@pytest.mark.parametrize("name", DEEP)
def test_depth_and_growth_are_bounded(name: str) -> None:
    text, says = DEEP[name]
    refused({name: text}, says)


def test_a_recipe_builds_the_encoder_beside_a_decoder_on_one_stage() -> None:
    launch = Launch(
        strategy=parse_strategy("tp2 pp2 dp4 mbs1 zero1"),
        model=load_model("qwen2.5-vl-7b"),
        workload=Workload(global_batch=64, seq_len=4096),
        devices_per_node=8,
    )
    bridge = format_named("megatron-bridge")

    with pytest.raises(RequestError, match=r"pp=2: .*the decoder alone; nearest .*: tp2 pp1 dp8"):
        bridge.express(launch)
    near = bridge.nearest(launch)

    assert near is not None
    assert import_texts(bridge.express(near)).strategy == near.strategy
    for name in ("clip-vit-l-14", "whisper-large-v3"):
        with pytest.raises(RequestError, match="is not a decoder over tokens"):
            bridge.express(dataclasses.replace(near, model=load_model(name)))
