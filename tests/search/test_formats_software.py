"""Switches in launch files: three groups of settings, older words, and files that used to be misread."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from forerun_launches import DENSE, MIXTURE

from forerun.search.formats import Launch, format_named, import_texts
from forerun.search.formats.express import express
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute, parse_strategy
from forerun.spaces.workload import Workload

DEGREES = "--tensor-model-parallel-size 1 --num-layers 8 --micro-batch-size 1 --global-batch-size 64 --bf16"
MOE = f"{DEGREES} --num-experts 64 --expert-model-parallel-size 8 --moe-router-topk 4"


def script(arguments: str, head: str = "") -> dict[str, str]:
    command = f"torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py {arguments}"
    return {"train.sh": f"#!/bin/bash\n{head}\n{command}\n"}


def launch(strategy: str, *, mixture: bool = True, **switches: str) -> Launch:
    named = {name.replace("_", "-"): setting for name, setting in switches.items()}
    workload = Workload(global_batch=768, seq_len=4096)
    model = MIXTURE if mixture else DENSE
    return Launch(strategy=parse_strategy(strategy), model=model, workload=workload, devices_per_node=8, switches=named)


HYBRID = "--optimizer-cpu-offload --use-precision-aware-optimizer"
EIGHT = "--fp8-format hybrid"
FLEX = "--moe-token-dispatcher-type flex"
GRAPHS = "--cuda-graph-impl transformer_engine"
LOCAL = "--cuda-graph-impl local"
READ: dict[str, dict[str, dict[str, str | None]]] = {
    "dispatchers, in words of all releases": {
        MOE: {"dispatcher": "allgather"},
        f"{MOE} --moe-token-dispatcher-type alltoall": {"dispatcher": "alltoall"},
        f"{MOE} {FLEX} --moe-enable-deepep": {"dispatcher": "deepep"},
        f"{MOE} {FLEX} --moe-flex-dispatcher-backend hybridep": {"dispatcher": "hybridep"},
    },
    "scopes of graphs, in words of all releases": {
        f"{MOE} {GRAPHS} --cuda-graph-scope attn": {"cuda-graphs": "attn"},
        f"{MOE} {LOCAL} --cuda-graph-modules attn mlp": {"cuda-graphs": "mlp"},
        f"{MOE} {GRAPHS} --cuda-graph-modules attn moe_router moe_preprocess": {"cuda-graphs": "router"},
        f"{MOE} {GRAPHS}": {"cuda-graphs": "on"},
        f"{MOE} --cuda-graph-impl full_iteration": {"cuda-graphs": "full"},
        f"{MOE} {LOCAL} --cuda-graph-scope full_iteration": {"cuda-graphs": "full"},
    },
    "shares on the host": {
        f"{DEGREES} {HYBRID}": {"optimizer-offload": "on", "offload-overlap": "off", "activation-offload": "off"},
        f"{DEGREES} {HYBRID} --optimizer-offload-fraction 0.50": {"optimizer-offload": "0.5"},
        f"{DEGREES} {HYBRID} --optimizer-offload-fraction 0.0": {"optimizer-offload": "off"},
        f"{DEGREES} {HYBRID} --overlap-cpu-optimizer-d2h-h2d": {"offload-overlap": "on"},
        f"{DEGREES} --cpu-offloading-num-layers 2": {"activation-offload": "0.25"},
        f"{DEGREES} --fine-grained-activation-offloading --activation-offload-fraction 0.6": {
            "activation-offload": "0.6"
        },
    },
    "recipes of eight bit": {
        f"{DEGREES} {EIGHT}": {"fp8-recipe": "delayed"},
        f"{DEGREES} {EIGHT} --fp8-recipe tensorwise": {"fp8-recipe": "current"},
        f"{DEGREES} {EIGHT} --fp8-recipe blockwise": {"fp8-recipe": "block"},
    },
    "weights in eight bit belong to eight-bit training": {
        f"{DEGREES} {EIGHT} --fp8-param-gather": {"fp8-params": "on"},
        f"{DEGREES} {EIGHT}": {"fp8-params": "off"},
        DEGREES: {"fp8-params": None},
    },
    "Megatron-DeepSpeed runs without flash attention unless asked": {
        f"{DEGREES} --deepspeed --zero-stage 1": {"attention": "fused_softmax"},
        f"{DEGREES} --deepspeed --zero-stage 1 --use-flash-attn-v2": {"attention": "flash2"},
    },
}
"""Of every rule: arguments of a script, and the switches that they set."""


@pytest.mark.parametrize("rule", READ)
def test_switches_are_read_from_arguments(rule: str) -> None:
    for arguments, switches in READ[rule].items():
        found = import_texts(script(arguments))
        assert {name: found.switches.get(name) for name in switches} == switches, arguments
        assert not found.unknown and not {name for name in found.other if "offload" in name}, arguments
        if EIGHT in arguments:
            assert found.workload["precision"] == "fp8" and not found.notes, arguments


@pytest.mark.parametrize(
    ("arguments", "recompute"),
    [("--checkpoint-activations", Recompute.FULL), ("--recompute-activations", Recompute.SELECTIVE)],
)
def test_layers_were_recomputed_before_there_was_a_granularity(arguments: str, recompute: Recompute) -> None:
    assert import_texts(script(f"{DEGREES} {arguments}")).strategy.recompute == recompute


def test_settings_come_in_three_groups() -> None:
    relevant = "--moe-permute-fusion --reuse-grad-buf-for-mxfp8-param-ag --no-rope-fusion"
    harmless = "--lr 1e-4 --wandb-project x --log-interval 1 --seed 3"
    found = import_texts(script(f"{MOE} --overlap-grad-reduce --grad-reduce-in-bf16 {relevant} {harmless}"))
    assert found.switches["overlap-grad-reduce"] == "on"
    assert found.switches["bf16-grads"] == "on"
    assert set(found.unmodelled) == {word for word in relevant.split() if word.startswith("--")}
    assert set(found.other) == {word for word in harmless.split() if word.startswith("--")}
    assert not found.unknown


def test_no_flag_of_a_switch_is_harmless() -> None:
    from forerun.spaces.frameworks import all_switches

    for switch in all_switches().values():
        support = switch.frameworks.get("megatron-lm")
        for flags in () if support is None else support.flags.values():
            arguments = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in flags.items() if not k.isupper())
            found = import_texts(script(f"{MOE} {arguments}"))
            assert not {name for name in found.other if name.lstrip("-").replace("-", "_") in flags}, switch.name


def test_an_exported_script_says_what_was_predicted() -> None:
    request = {"model": "qwen3-30b-a3b", "cluster": "dgx-h100", "global_batch": 768, "seq_len": 4096}
    item = format_named("megatron-lm")
    one = launch("tp1 pp1 dp8 ep8 mbs1 zero1")
    for dispatcher, words in (("deepep", "--moe-flex-dispatcher-backend deepep"), ("alltoall", "alltoall")):
        context = resolve(Request(**request, switches={"dispatcher": dispatcher})).context
        text = express(item, one, context)["launch.sh"]
        assert words in text
        assert ("deepep" in text) == (dispatcher == "deepep")


def test_what_a_format_has_no_words_for_is_refused() -> None:
    with pytest.raises(RequestError, match="nemo has no flag for master-weights=fp16; it has fp32, remainders"):
        format_named("megatron-bridge").express(launch("tp1 dp8 mbs1 zero1", master_weights="fp16"))


NEMO = """\
trainer: {devices: 8, num_nodes: 2, precision: bf16}
model:
  tensor_model_parallel_size: 4
  micro_batch_size: 1
  global_batch_size: 64
"""


@pytest.mark.parametrize(("optimizer", "zero"), [("mcore_distributed_optim", 1), ("fused_adam", 0)])
def test_nemo_optimizers_that_shard_are_zero_one(optimizer: str, zero: int) -> None:
    assert import_texts({"nemo.yaml": f"{NEMO}  optim: {{name: {optimizer}}}\n"}).strategy.zero == zero


def test_nemo_1_has_words_of_its_own_for_switches() -> None:
    overlap = "overlap_grad_sync: true, overlap_param_sync: true, grad_sync_dtype: bf16"
    rest = (
        f"  sequence_parallel: true\n  ub_tp_comm_overlap: true\n  optim: {{name: distributed_fused_adam, {overlap}}}\n"
    )
    found = import_texts({"a.yaml": NEMO + rest}).switches

    named = ("overlap-grad-reduce", "overlap-param-gather", "tp-comm-overlap", "bf16-grads")
    assert {name: found[name] for name in named} == dict.fromkeys(named, "on")


def test_megatron_deepspeed_words_are_read() -> None:
    found = import_texts(script(f"{DEGREES} --zero-stage 3 --num-experts 8 --moe-expert-parallel-size 4"))
    assert (found.strategy.zero, found.strategy.ep) == (3, 4)


def test_a_degree_that_a_reader_does_not_know_is_no_guess() -> None:
    text = "SOME_TOOL:\n  --tensor-model-parallel-size: 4\n  --pipeline-model-parallel-size: 2\n"
    with pytest.raises(RequestError, match=r"degrees would be lost|looks like no format|no command with arguments"):
        import_texts({"model_config.yaml": text})


def test_numbers_as_python_writes_them() -> None:
    assert import_texts(script(f"{DEGREES} --seq-length 32_000")).workload["seq_len"] == 32000


def test_command_lines_of_megatron_bridge_are_read() -> None:
    item = format_named("megatron-bridge")
    one = launch("tp4 pp2 dp2 mbs2 zero1 sp", mixture=False, bf16_grads="off")
    found = import_texts({"launch.sh": item.express(one)["launch.sh"]})
    assert found.format == "megatron-bridge"
    assert found.strategy == one.strategy
    assert found.switches["bf16-grads"] == "off"
    text = "torchrun run_recipe.py --recipe x model.tensor_model_parallel_size=2 ddp.overlap_grad_reduce=true\n"
    assert import_texts({"run.sh": text}, gpus=4).strategy.tp == 2


def test_an_unsharded_optimizer_stays_so_in_megatron_bridge() -> None:
    files = format_named("megatron-bridge").express(launch("tp4 dp2 mbs1 sp", mixture=False))
    assert "optimizer.use_distributed_optimizer=false" in files["launch.sh"]
    assert "ddp.overlap_param_gather=false" in files["launch.sh"]


def test_nanotron_refuses_models_that_it_would_build_otherwise() -> None:
    with pytest.raises(RequestError, match="without layers of several kinds, shared experts"):
        format_named("nanotron").express(launch("tp1 dp8 mbs1"))


@pytest.mark.slow
def test_a_baseline_is_predicted_with_its_own_switches(tmp_path: Path) -> None:
    from forerun.search.answer.baseline import read_present, stand_beside
    from forerun.search.answer.searches import search_request

    file = tmp_path / "train.sh"
    degrees = "--tensor-model-parallel-size 4 --sequence-parallel --num-layers 32 --micro-batch-size 1"
    rest = "--global-batch-size 64 --seq-length 4096 --bf16 --use-distributed-optimizer --optimizer-cpu-offload"
    file.write_text(f"torchrun --nproc-per-node 8 --nnodes 8 pretrain_gpt.py {degrees} {rest} --manual-gc\n")
    request = Request(model="llama3-8b", cluster="dgx-h100", gpus="64", global_batch=64, seq_len=4096)
    board = stand_beside(search_request(request), resolve(request), read_present([str(file)]))
    baseline = board.baseline
    assert baseline is not None
    assert baseline.switches["overlap-grad-reduce"] == "off"
    assert baseline.switches["optimizer-offload"] == "on"
    assert set(baseline.unmodelled) == {"--manual-gc"}
    assert any("overlap-grad-reduce=off (on)" in note for note in baseline.notes)
    assert any("(--overlap-grad-reduce) speeds your run up" in note for note in baseline.notes)


FSDP = """distributed_type: FSDP
mixed_precision: bf16
num_machines: 2
num_processes: 16
fsdp_config: {{fsdp_version: 1, fsdp_sharding_strategy: FULL_SHARD, {}}}
"""


def test_files_of_accelerate_say_how_fsdp_gathers() -> None:
    on, off = (
        import_texts({"fsdp.yaml": FSDP.format(f"fsdp_backward_prefetch: {word}")})
        for word in ("BACKWARD_PRE", "NO_PREFETCH")
    )
    assert (on.switches["overlap-param-gather"], off.switches["overlap-param-gather"]) == ("on", "off")
    ahead = import_texts({"fsdp.yaml": FSDP.format("fsdp_forward_prefetch: true, fsdp_state_dict_type: x")})
    assert set(ahead.unmodelled) == {"fsdp_config.fsdp_forward_prefetch"}
    assert "fsdp_config.fsdp_state_dict_type" in ahead.other


def test_flat_parameters_are_the_first_fsdp() -> None:
    item = format_named("accelerate-fsdp")
    for setting, version in (("flat", 1), ("each", 2)):
        for zero in (2, 3):
            one = launch(f"tp1 dp16 mbs1 zero{zero}", mixture=False, fsdp_parameters=setting)
            files = item.express(one)
            assert f"fsdp_version: {version}" in files["accelerate-fsdp.yaml"]
            found = import_texts(files)
            assert (found.switches["fsdp-parameters"], found.strategy.zero) == (setting, zero)
    with pytest.raises(RequestError, match="FSDP 1 has no ParallelismConfig"):
        item.express(launch("tp2 dp8 mbs1 zero3", mixture=False, fsdp_parameters="flat"))


def test_overrides_inside_a_quoted_command_are_read() -> None:
    words = "model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=4 train.global_batch_size=64"
    text = f'srun bash -c "uv run python scripts/run_recipe.py --recipe llama3_8b {words} train.micro_batch_size=1"\n'
    found = import_texts({"train.sh": text}, format="megatron-bridge", gpus=32)
    assert (found.strategy.tp, found.strategy.pp, found.strategy.dp) == (2, 4, 4)


def test_a_setting_that_a_user_chose_is_not_dropped_where_there_is_no_flag_for_it() -> None:
    request = Request(
        model="llama2-13b",
        cluster="dgx-h100",
        gpus="16",
        global_batch=64,
        seq_len=2048,
        framework="fsdp",
        switches={"chunked-loss": "on"},
    )
    context = resolve(request).context
    made = Launch(
        strategy=parse_strategy("tp1 dp16 mbs1 zero3"),
        model=context.model,
        workload=context.workload,
        devices_per_node=8,
    )
    with pytest.raises(RequestError, match="no flag for chunked-loss, which the prediction assumed"):
        express(format_named("accelerate-fsdp"), made, context)
    assert express(format_named("forerun"), made, context)


def test_bridge_offloads_nothing_unless_a_share_is_stated() -> None:
    """``OptimizerConfig.optimizer_offload_fraction`` is 0 where no one sets it."""
    item = format_named("megatron-bridge")
    for setting, number in (("on", "1.0"), ("0.4", "0.4")):
        share = f"optimizer.optimizer_offload_fraction={number}"
        files = item.express(launch("tp2 dp8 mbs1 zero1 sp", mixture=False, optimizer_offload=setting))
        assert share in files["launch.sh"]
        assert import_texts(files).switches["optimizer-offload"] == setting
        without = {"launch.sh": files["launch.sh"].replace(share, "")}
        assert import_texts(without).switches["optimizer-offload"] == "off"


def test_settings_of_torchtitan_stand_in_tables_inside_of_tables() -> None:
    one = launch("tp1 pp2 dp8 mbs2 zero3", mixture=False, fp8_params="on", fp8_recipe="current")
    files = format_named("torchtitan-toml").write(replace(one, workload=replace(one.workload, precision="fp8")))
    settings = tomllib.loads(files["torchtitan.toml"])
    assert settings["quantize"]["linear"]["float8"] == {
        "enable_fsdp_float8_all_gather": True,
        "recipe_name": "tensorwise",
    }
    found = import_texts(files).switches
    assert (found["fp8-params"], found["fp8-recipe"]) == ("on", "current")


def test_graphs_of_modules_are_for_models_that_have_these() -> None:
    request = {"cluster": "dgx-h100", "global_batch": 64, "seq_len": 4096, "framework": "nemo"}
    for model, setting in (("llama3-8b", "router"), ("qwen3-30b-a3b", "on"), ("qwen3-30b-a3b", "mlp")):
        with pytest.raises(RequestError, match=f"cuda-graphs={setting} needs"):
            resolve(Request(**request, model=model, switches={"cuda-graphs": setting}))
    with pytest.raises(RequestError, match="cuda-graphs=router needs experts"):
        format_named("megatron-lm").express(launch("tp1 dp8 mbs1 zero1", mixture=False, cuda_graphs="router"))


def test_mx_is_a_recipe_and_a_precision() -> None:
    """Either says the same; the file says both once."""
    request = {"model": "llama3-8b", "cluster": "dgx-b200", "global_batch": 64, "seq_len": 4096}
    named = resolve(Request(**request, precision="mxfp8")).context
    asked = resolve(Request(**request, precision="fp8", switches={"fp8-recipe": "mx"})).context
    assert named.workload.precision == asked.workload.precision == "mxfp8"
    assert named.framework == asked.framework and named.framework.eight_bit_recipe == "mx"
    with pytest.raises(RequestError, match="mxfp8 is fp8 with fp8-recipe=mx, but got fp8-recipe=block"):
        resolve(Request(**request, precision="mxfp8", switches={"fp8-recipe": "block"}))
    with pytest.raises(RequestError, match="mxfp8"):
        resolve(Request(**{**request, "cluster": "dgx-h100"}, precision="fp8", switches={"fp8-recipe": "mx"}))
    made = launch("tp1 dp8 mbs1 zero1", mixture=False)
    files = express(format_named("megatron-lm"), replace(made, workload=asked.workload), asked)
    assert files["launch.sh"].count("--fp8-recipe mxfp8") == 1
    assert import_texts(files).workload["precision"] == "mxfp8"


def test_bridge_sections_that_a_recipe_may_lack_are_written_whole() -> None:
    """``ddp.grad_reduce_in_fp32`` is overwritten by the section of precision, and an overlap may be none."""
    item = format_named("megatron-bridge")
    files = item.express(launch("tp2 pp2 dp4 ep4 mbs1 vpp3 zero1 sp schedule=interleaved", bf16_grads="on"))
    assert "++mixed_precision.grad_reduce_in_fp32=false" in files["launch.sh"]
    assert "++comm_overlap._target_" in files["launch.sh"] and "*id" not in files["megatron-bridge.yaml"]
    assert import_texts(files).switches["bf16-grads"] == "on"


@pytest.mark.parametrize("name", ["megatron-lm", "megatron-bridge"])
def test_the_precision_aware_optimizer_is_a_sharded_one(name: str) -> None:
    item = format_named(name)
    with pytest.raises(RequestError, match="zero=1"):
        item.express(launch("tp8 pp1 dp2 mbs1 sp", mixture=False, optimizer_offload="on"))
    assert "use.distributed.optimizer" in (alone := item.express(launch("tp8 mbs1 sp", optimizer_offload="on")))[
        "launch.sh"
    ].replace("_", ".").replace("-", ".")
    assert import_texts(alone).strategy.zero == 0
