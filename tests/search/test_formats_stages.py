"""What formats say of stages that differ: forerun's own all, Megatron's block method one case, others a reason."""

from dataclasses import replace

import pytest
from forerun_examples import dense_model
from forerun_launches import DENSE

from forerun.search.formats import Launch, import_texts, writable
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Split, parse_strategy
from forerun.spaces.workload import Workload

MEGATRON = ("megatron-lm", "megatron-bridge")


def launch_of(text: str) -> Launch:
    workload = Workload(global_batch=768, seq_len=4096, precision="bf16")
    return Launch(strategy=parse_strategy(text), model=DENSE, workload=workload, devices_per_node=8)


@pytest.mark.parametrize("text", ["tp2 pp4 dp4 mbs1 zero1 recompute=full:3", "pp1 dp16 mbs1 zero1 recompute=full:20"])
def test_the_same_number_on_every_stage_is_the_block_method(text: str) -> None:
    launch = launch_of(text)
    for item in writable():
        if item.name in MEGATRON:
            files = item.express(launch)
            assert "block" in "".join(files.values())
            assert import_texts(files).strategy == launch.strategy
        elif item.name != "forerun":
            with pytest.raises(RequestError, match=r"it recomputes all layers or none.*nearest that it can"):
                item.express(launch)


@pytest.mark.parametrize(
    "text,reason,nearest",
    [
        (
            "tp2/4 pp4 dp4/2 mbs1/2 zero1",
            "tp=2 in the first half of the stages and 4 in the second",
            "tp4 pp4 dp2 mbs2",
        ),
        ("tp2 pp4 dp4 mbs1 zero1 recompute=full:2,none*3", "recompute differs between stages", "recompute=full"),
        ("tp2 pp2 dp8 mbs1 zero1 recompute=selective,none", "recompute differs between stages", "recompute=selective"),
        (
            "tp2 pp2 dp8 mbs1 zero1 activation-offload=1,0",
            "shares on the host differ between stages",
            "--with activation-offload=1",
        ),
    ],
)
def test_others_are_refused_with_a_reason(text: str, reason: str, nearest: str) -> None:
    launch = launch_of(text)
    for item in writable():
        if item.name == "forerun":
            assert import_texts(item.express(launch)).strategy == launch.strategy
            continue
        with pytest.raises(RequestError, match=reason) as caught:
            item.express(launch)
        if item.name == "megatron-lm":
            assert nearest in str(caught.value).split("nearest")[1]


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("tp1 pp4 dp2 mbs1 vpp2 schedule=interleaved split=light-mtp", "(tttt|)*6tmL"),
        ("tp1 pp8 dp2 mbs1 vpp2 schedule=interleaved split=light-mtp", "Et|(tt|)*14mL"),
    ],
)
def test_layouts_of_a_prediction_block(text: str, layout: str) -> None:
    launch = launch_of(text)
    launch = replace(launch, model=replace(dense_model(layers=29), mtp_layers=1))
    for item in writable():
        if item.name in MEGATRON:
            files = item.express(launch)
            assert layout in "".join(files.values())
            assert import_texts(files).strategy.split == Split.LIGHT_MTP


def test_more_layers_than_a_stage_holds_are_all() -> None:
    arguments = (
        "--num-layers 24 --pipeline-model-parallel-size 4 --recompute-granularity full --recompute-method block "
        "--recompute-num-layers {} --micro-batch-size 1 --global-batch-size 64 --num-attention-heads 8"
    )
    few, all_of_them = (import_texts({"run.sh": f"python pretrain_gpt.py {arguments.format(n)}"}) for n in (2, 6))

    assert "recompute=full:2" in str(few.strategy)
    assert str(all_of_them.strategy).endswith("recompute=full")
