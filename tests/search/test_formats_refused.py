"""Documents that are no launch file of any tool, and values that no run could have, are refused with one sentence."""

import dataclasses

import pytest
from launch_files import text_of

from forerun.search.formats import Launch, format_named, import_texts
from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import Workload

NEOX, OLMO, OLMO_CORE, LEVANTER = map(text_of, ("neox", "olmo", "olmo-core", "levanter"))
RECIPES, PRESETS = text_of("bridge, recipe"), text_of("bridge, preset")
MAXTEXT = "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama2-70b max_target_length=4096 "

REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "a stage that is a flag": (
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": true}}'},
        "zero_optimization.stage must be one of 0, 1, 2, 3, but got",
    ),
    "a deployment": ({"a.yaml": "apiVersion: v1\nkind: Pod\nspec: {containers: []}\n"}, "looks like no format"),
    "a workflow": ({"a.yml": "on: push\njobs: {test: {steps: []}}\n"}, "looks like no format"),
    "another trainer's yaml": ({"a.yaml": "trainer:\n  max_steps: 3\nmodel: {name: x}\n"}, "looks like no format"),
    "a script that installs": (
        {"a.sh": "pip install torch\npython setup.py develop\n"},
        "starts setup.py, whose arguments",
    ),
    "a program": ({"a.py": "import torch\nprint(torch.__version__)\n"}, "no function"),
    "axolotl's data alone": ({"a.yaml": "base_model: x\nsample_packing: true\n"}, "states no degree and no batch"),
    "a recipe file with two": ({"a.py": RECIPES}, "has 2 configurations .* add --entry some_8b"),
    "a recipe by a wrong name": ({"b.py": RECIPES}, "some_8b"),
    "a word that means nothing": ({"a.yaml": OLMO.replace("amp_bf16", "bf15")}, "precision must be one of"),
    "degrees that do not fill": ({"a.yml": NEOX}, "7 GPUs are not divisible"),
    "tokens that are no sequences": (
        {"a.py": OLMO_CORE.replace("2 * SEQUENCE_LENGTH", "12345")},
        "12345 tokens must be whole sequences",
    ),
    "a fraction of a sequence": (
        {"a.sh": MAXTEXT + "per_device_batch_size=0.5 ici_fsdp_parallelism=7\n"},
        "must be whole",
    ),
    "an infinite batch": ({"a.sh": MAXTEXT + "per_device_batch_size=inf\n"}, "must be a number above 0"),
    "two minus signs": ({"a.yml": NEOX.replace('-parallel-size": 4', '-parallel-size": "--4"')}, "whole number"),
    "a microbatch of none": ({"a.yaml": LEVANTER.replace("parallelism: 4", "parallelism: 0")}, "at least 1, or -1"),
    "a degree that is a mapping": (
        {"a.py": PRESETS.replace("tensor_model_parallel_size=4", "tensor_model_parallel_size={}")},
        "configurations",
    ),
    "degrees of a preset": (
        {"a.sh": "python scripts/performance/setup_experiment.py -m llama -mr llama3_8b -ng 8 -g gb200 -c fp8_mx\n"},
        "leaves -tp, -pp, -cp, -mb, -gb to a preset",
    ),
    "python that is none": ({"a.py": "tensor_model_parallel_size = (\n"}, "the file is not Python"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_one_sentence(name: str) -> None:
    files, message = REFUSED[name]

    with pytest.raises(RequestError, match=message) as caught:
        import_texts(
            files, gpus=64 if "tokens" in name else 7, entry="some_9b" if name == "a recipe by a wrong name" else None
        )

    assert "\n" not in str(caught.value)


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
