"""The cluster decides the software that a search ranks for, exports, refuses and warns of."""

import re
from dataclasses import replace

import pytest
import yaml

from forerun.search import search
from forerun.search.answer.diagnosis.diagnosis import NothingFeasible
from forerun.search.api import search_request
from forerun.search.formats import Launch, format_named, import_texts
from forerun.search.formats.express import express, launch_in
from forerun.search.formats.registry import formats_of
from forerun.search.formats.table import writable
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.spaces.clusters import load_cluster
from forerun.spaces.clusters.catalogue import cluster_names
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import load_framework, switched
from forerun.spaces.models import load_model
from forerun.spaces.strategies import parse_strategy, table_of
from forerun.spaces.workload import Workload

ASKED = {"model": "llama3-70b", "global_batch": 256, "seq_len": 8192, "gpus": "64"}
FOREIGN = re.compile("torchrun|cuda|nccl|deepep|transformer.engine|ascend", re.IGNORECASE)


@pytest.mark.parametrize(
    ("cluster", "model", "framework", "warned"),
    [
        ("dgx-h100", "llama3-8b", "megatron-lm", ""),
        ("mi300x-platform", "llama3-8b", "megatron-lm", ""),
        ("tpu-v5p-pod", "llama3-8b", "maxtext", ""),
        ("ascend-910b-box", "llama3-8b", "mindspeed", ""),
        ("gaudi3-box", "llama3-8b", "deepspeed", ""),
        ("aws-trn2", "llama3-8b", "nxd", "writes no launch files of nxd"),
        ("dgx-h100", "bert-large", "fsdp", ""),
        ("dgx-h100", "whisper-large-v3", "fsdp", ""),
        ("ascend-910b-box", "t5-3b", "deepspeed", ""),
        ("tpu-v5p-pod", "bert-large", "generic", "no framework of the catalogue trains"),
        ("dgx-h100", "qwen2.5-vl-7b", "megatron-lm", ""),
    ],
)
@pytest.mark.slow
def test_the_usual_framework_is_that_of_vendor_and_model(cluster: str, model: str, framework: str, warned: str) -> None:
    asked = {**ASKED, "model": model, "cluster": cluster, "seq_len": 448}
    board = search_request(Request(**asked, top=1))
    assert board.request["framework"] == framework
    warnings = [text for text in board.warnings if "launch" in text]
    assert bool(warnings) is bool(warned) and all(warned in text for text in warnings)
    assert set(warnings) <= set(board.to_json()["request"]["notes"])


@pytest.mark.parametrize(
    ("cluster", "named", "words"),
    [
        ("tpu-v5p-pod", {"framework": "megatron-lm"}, "needs devices of NVIDIA or AMD, but tpu-v5p is of Google"),
        ("dgx-h100", {"framework": "nemo-blackwell"}, "needs Blackwell, but h100-sxm is Hopper"),
        ("ascend-910b-box", {"switches": {"cuda-graphs": "on"}}, "no switch cuda-graphs"),
        ("rtx-pro-6000-pcie", {"switches": {"dispatcher": "hybridep"}}, "dispatcher=hybridep needs"),
        ("mi300x-platform", {"switches": {"tp-comm-overlap": "on"}}, "tp-comm-overlap=on needs devices of NVIDIA"),
    ],
)
def test_software_that_devices_do_not_have_is_refused(cluster: str, named: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        resolve(Request(**ASKED, cluster=cluster, **named))  # type: ignore[arg-type]  # of several kinds


@pytest.mark.parametrize("text", ["tp8 pp1 dp8 mbs2 zero3 sp", "tp4 pp4 dp4 mbs1 zero3 recompute=full schedule=gpipe"])
@pytest.mark.parametrize("switches", [{}, {"activation-offload": "on", "chunked-loss": "on"}])
def test_a_launch_of_maxtext_takes_the_predicted_time(text: str, switches: dict[str, str]) -> None:
    context = resolve(Request(**ASKED, cluster="tpu-v5p-pod", switches=switches)).context
    recompute = " recompute=selective" if switches and "recompute" not in text else ""
    row = search("llama3-70b", cluster="tpu-v5p-pod", gpus=64, global_batch=256, seq_len=8192, top=1).rows[0]
    for strategy in (row.strategy, parse_strategy(text + recompute)):
        if switches and not strategy.recompute:
            continue
        (item,) = formats_of(context.framework)
        files = express(item, launch_in(context, strategy, name="x"), context)
        assert not FOREIGN.search("\n".join(files.values())) and "slurm.sbatch" not in files
        found = import_texts(files)
        assert found.strategy == strategy and not found.unknown
        again = replace(context, framework=switched(load_framework("maxtext"), found.switches))
        steps = [float(score(one, table_of([strategy])).step_time_s[0]) for one in (context, again)]
        assert steps[0] == pytest.approx(steps[1], rel=0.01)


def test_stages_of_maxtext_hold_every_layer() -> None:
    workload, item = Workload(global_batch=64, seq_len=4096), format_named("maxtext")
    strategy = parse_strategy("tp1 pp4 dp4 mbs1 vpp2 zero3 recompute=full schedule=interleaved")
    launch = Launch(strategy=strategy, model=load_model("llama3-8b"), workload=workload, devices_per_node=4)
    text = item.express(launch)["maxtext.yml"]
    data = yaml.safe_load(text)
    assert data["num_layers_per_pipeline_stage"] * data["num_pipeline_repeats"] * 4 == 32
    without = "".join(line for line in text.splitlines(True) if "num_pipeline_repeats" not in line)
    assert import_texts({"maxtext.yml": without}).strategy.vpp == 2  # as MaxText computes them
    assert import_texts({"maxtext.yml": without.replace("num_layers_per_pipeline_stage: 4", "")}).strategy.vpp == 8


@pytest.mark.parametrize(
    ("model", "batch", "precision", "text", "reason"),
    [
        ("llama3-8b", 24, "bf16", "pp4 dp4 mbs1 zero3 schedule=gpipe recompute=full", "not a multiple of 4 stages"),
        ("llama3-8b", 64, "fp8", "dp16 mbs1 zero3 recompute=full", "accumulates no gradients"),
        ("glm-4.5-air", 64, "bf16", "dp16 mbs1 zero3 recompute=full", "has no glm-4.5-air"),
    ],
)
def test_maxtext_is_asked_nothing_that_its_configuration_refuses(
    model: str, batch: int, precision: str, text: str, reason: str
) -> None:
    workload = Workload(global_batch=batch, seq_len=4096, precision=precision)
    strategy = parse_strategy(text)
    launch = Launch(strategy=strategy, model=load_model(model), workload=workload, devices_per_node=4)
    with pytest.raises(RequestError, match=reason):
        format_named("maxtext").express(launch)


@pytest.mark.parametrize("cluster", ["tpu-v5p-pod", "ascend-910b-box", "aws-trn2", "gaudi3-box"])
def test_no_format_starts_software_on_devices_that_do_not_run_it(cluster: str) -> None:
    context = resolve(Request(**ASKED, cluster=cluster, framework="generic")).context
    vendor, strategy = context.cluster.device.vendor, parse_strategy("tp1 pp1 dp64 mbs1 zero3")
    for item in writable():
        vendors = load_framework(item.framework).vendors if item.framework else item.vendors
        if vendors and vendor not in vendors:
            with pytest.raises(RequestError, match=f"and not of {vendor}"):
                express(item, launch_in(context, strategy, name="x"), context)


@pytest.mark.slow
def test_a_diagnosis_offers_frameworks_of_the_devices_alone() -> None:
    with pytest.raises(NothingFeasible) as refused:
        search("llama3-405b", cluster="ascend-910b-box", gpus=8, global_batch=8, seq_len=1048576)
    offered = re.findall(r"--framework (\S+):", str(refused.value))
    assert all("Huawei" in load_framework(name).vendors for name in offered)


def test_switches_reduce_on_nvidia_devices_alone() -> None:
    for name in cluster_names():
        cluster = load_cluster(name)
        if any(level.in_switch for level in cluster.levels):
            assert cluster.device.vendor == "NVIDIA", name
            assert cluster.device.architecture.startswith(("Hopper", "Blackwell")), name
