"""The frameworks' own parsers accept what forerun writes, twenty strategies and more in each format.

A test runs where its framework is installed and is skipped elsewhere: none of them is a dependency, torch alone has
gigabytes. ``make test-frameworks`` installs them into an environment of their own; docs/formats.md has the versions.
"""

import dataclasses
import functools
import importlib
import itertools
import json
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from forerun.search.formats import Launch, format_named
from forerun.spaces.models import load_model, resolve_model
from forerun.spaces.models.parameters import parameter_count
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import Workload

pytestmark = pytest.mark.filterwarnings("default")

STRATEGIES = (
    "tp1 pp1 dp1 mbs1",
    "tp1 pp1 dp8 mbs2",
    "tp1 pp1 dp8 mbs1 zero1",
    "tp1 pp1 dp16 mbs2 zero2",
    "tp1 pp1 dp16 mbs1 zero3 recompute=full",
    "tp2 pp1 dp8 mbs1 zero3 sp recompute=full",
    "tp4 pp1 dp4 cp2 mbs1 zero3 sp recompute=full",
    "tp4 pp1 dp4 cp2 mbs1 zero2 recompute=full",
    "tp8 pp1 dp4 mbs1 zero1 sp recompute=full",
    "tp4 pp4 dp2 mbs1 zero1 sp recompute=full",
    "tp4 pp4 dp2 mbs1 vpp5 zero1 sp schedule=interleaved",
    "tp4 pp8 dp2 mbs1 vpp2 zero1 sp recompute=full schedule=interleaved placement=tp-cp-ep-pp-dp",
    "tp2 pp4 dp2 mbs2 zero1 sp layers=17,21,21,21",
    "tp2 pp8 dp2 mbs1 vpp4 zero1 sp schedule=interleaved split=balanced",
    "tp2 pp9 dp2 mbs1 zero1 sp split=light-last recompute=full",
    "tp2 pp2 dp4 mbs2 zero2 sp schedule=gpipe recompute=full",
    "tp2 pp4 dp4 mbs1 vpp2 zero3 sp schedule=zb-v",
    "tp2 pp4 dp4 mbs1 vpp4 zero2 sp recompute=selective schedule=interleaved",
    "tp2 pp4 dp4 mbs1 zero1 sp recompute=full split=by-cost",
    "tp2 pp4 dp4 mbs1 zero1 sp recompute=full schedule=gpipe split=by-cost",
)
"""Twenty of many kinds, which a format either expresses or names the nearest of."""
VARIED = tuple(
    f"tp{tp} dp{dp} mbs{mbs} zero{zero} recompute={recompute}"
    for zero, dp, mbs in itertools.product((1, 2, 3, 0), (4, 8, 16), (1, 2))
    for tp, recompute in ((1, "none"), (2, "full"))
)
"""What fills up to twenty where a format has few ways to split."""
MIXTURES = ("tp2 pp1 dp8 ep8 mbs1 zero2 sp", "tp2 pp4 dp4 ep4 mbs1 zero1 sp")
TWENTY = 20


@functools.cache
def expressed(name: str) -> tuple[tuple[Launch, dict[str, str]], ...]:
    """Return different launches of a dense and a mixture model that a format expresses, with their files."""
    item = format_named(name)
    texts = [("qwen3-30b-a3b", text) for text in MIXTURES]
    texts += [("llama3-70b", text) for text in (*STRATEGIES, *VARIED)]
    found: dict[tuple[str, str], tuple[Launch, dict[str, str]]] = {}
    for model, text in texts:
        launch = item.nearest(
            Launch(
                strategy=parse_strategy(text),
                model=load_model(model),
                workload=Workload(global_batch=64, seq_len=4096),
                devices_per_node=8,
            )
        )
        if launch is not None and len(found) < TWENTY + len(MIXTURES):
            found.setdefault((model, str(launch.strategy)), (launch, dict(item.express(launch))))
    assert len(found) >= TWENTY
    return tuple(found.values())


def the(name: str) -> Any:
    """Return a module, or skip the test where its package is not installed."""
    return pytest.importorskip(name, exc_type=ImportError)


@pytest.mark.parametrize("name", ("accelerate-fsdp", "accelerate-megatron"))
def test_accelerate_loads_the_yaml(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    the("accelerate")
    config_args = the("accelerate.commands.config.config_args")
    launch_command = the("accelerate.commands.launch")
    item = format_named(name)
    for number, (launch, files) in enumerate(expressed(name)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(files[item.main])
        config = config_args.load_config_from_file(str(path))
        assert config.num_processes == launch.strategy.devices

        parser = launch_command.launch_command_parser()
        arguments = parser.parse_args(["--config_file", str(path), "train.py"])
        arguments, _, _ = launch_command._validate_launch_command(arguments)
        if launch.strategy.zero and name == "accelerate-fsdp":
            assert arguments.parallelism_config_dp_shard_size == launch.strategy.dp
            _accelerate_accepts_the_degrees(config.parallelism_config, launch)
        if name == "accelerate-megatron":
            assert arguments.megatron_lm_pp_degree == launch.strategy.pp


def _accelerate_accepts_the_degrees(values: dict[str, Any], launch: Launch) -> None:
    parallelism = the("accelerate.parallelism_config")
    names = {key.removeprefix("parallelism_config_"): value for key, value in values.items()}
    config = parallelism.ParallelismConfig(**names)
    assert config.total_size == launch.strategy.devices


class Replicas:
    """What DeepSpeed asks a model-parallel unit for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def get_data_parallel_world_size(self) -> int:
        return self.count


def test_deepspeed_reads_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    config = the("deepspeed.runtime.config")
    tensor = the("deepspeed.runtime.tensor_parallel.config")
    expert = the("deepspeed.module_inject.auto_ep_config")
    monkeypatch.setattr(config.dist, "get_rank", lambda: 0)
    for launch, files in expressed("deepspeed"):
        data = json.loads(files["ds_config.json"])
        read = config.DeepSpeedConfig(data, mpu=Replicas(launch.strategy.dp))  # checks that the batches multiply
        assert read.zero_optimization_stage == launch.strategy.zero
        assert read.train_batch_size == launch.workload.global_batch
        assert read.train_micro_batch_size_per_gpu == launch.strategy.mbs
        if "tensor_parallel" in data:
            assert tensor.get_tensor_parallel_config(data).autotp_size == launch.strategy.tp
        if "expert_parallel" in data:
            parsed = expert.parse_autoep_config(data["expert_parallel"])
            degrees = {"world_size": launch.strategy.devices, "pp_size": 1, "tp_size": launch.strategy.tp, "sp_size": 1}
            expert.validate_autoep_config(parsed, **degrees, zero_stage=launch.strategy.zero)


def test_torchtitan_reads_the_toml(tmp_path: Path) -> None:
    manager = the("torchtitan.config.manager")
    the("torchtitan.config.job_config")  # versions after 0.2.2 read no TOML
    for number, (launch, files) in enumerate(expressed("torchtitan-toml")):
        path = tmp_path / f"{number}.toml"
        path.write_text(files["torchtitan.toml"])
        config = manager.ConfigManager().parse_args(["--job.config_file", str(path)])
        assert config.parallelism.tensor_parallel_degree == launch.strategy.tp
        assert config.parallelism.pipeline_parallel_degree == launch.strategy.pp
        assert config.training.global_batch_size == launch.workload.global_batch


def test_torchtitan_toml_deals_the_same_stages() -> None:
    pipeline = the("torchtitan.distributed.pipeline_parallel")
    deal = getattr(pipeline, "generate_llm_fqn_per_model_part", None)
    if deal is None:
        pytest.skip("this version deals stages elsewhere")
    from forerun.search.formats.titan_keys import dealt

    for layers, stages, first, last in ((80, 8, 0, 0), (126, 16, 1, 1), (79, 8, 0, 1), (61, 7, 1, 2)):
        parts = deal(stages, layers, first, last)
        counts = tuple(sum(name.startswith("layers.") for name in part) for part in parts)
        assert counts == dealt(layers, stages, first, last)


def test_torchtitan_python_builds_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = the("torchtitan.config.configs")
    the("torchtitan.trainer")
    tokens = "num_tokens_per_train_step" in {field.name for field in dataclasses.fields(configs.TrainingConfig)}
    name = "torchtitan" if tokens else "torchtitan-0.3"
    monkeypatch.syspath_prepend(str(tmp_path))
    for number, (launch, files) in enumerate(expressed(name)):
        (tmp_path / f"forerun_config_{number}.py").write_text(files["torchtitan_config.py"])
        config = importlib.import_module(f"forerun_config_{number}").forerun_config()
        del sys.modules[f"forerun_config_{number}"]
        assert config.parallelism.tensor_parallel_degree == launch.strategy.tp
        assert config.parallelism.pipeline_parallel_degree == launch.strategy.pp
        # What the trainer builds before it needs devices: an abstract loss or an empty optimizer would stop it there.
        assert config.loss.build(compile_config=config.compile) is not None
        assert config.optimizer.param_groups and config.compile.enable


def test_megatron_core_takes_the_layout_and_the_degrees() -> None:
    layouts = the("megatron.core.transformer.pipeline_parallel_layer_layout")
    configs = the("megatron.core.transformer.transformer_config")
    from forerun.search.formats.megatron_write import parallel_arguments

    fields = {field.name for field in dataclasses.fields(configs.TransformerConfig)}
    checked = 0
    for launch, _ in expressed("megatron-bridge"):
        arguments = parallel_arguments(launch)
        values = {key: _listed(value) for key, value in arguments.items() if key in fields}
        vpp = launch.strategy.vpp
        values |= {"virtual_pipeline_model_parallel_size": vpp} if vpp > 1 else {}
        if launch.strategy.pp > 1:
            values["pipeline_dtype"] = importlib.import_module("torch").bfloat16
        layers = launch.model.layer_count
        heads = launch.model.layers[-1].attention.heads
        values |= {"num_layers": layers, "num_attention_heads": heads, "hidden_size": launch.model.hidden}
        if "expert_model_parallel_size" in arguments:
            values["num_moe_experts"] = 128
        config = configs.TransformerConfig(**values)
        assert config.pipeline_model_parallel_size == launch.strategy.pp
        if layout := arguments.get("pipeline_model_parallel_layout"):
            counts = [len(stage) for stage in layouts.PipelineParallelLayerLayout.parse_str_to_list(layout)]
            assert sum(counts) == layers + 2  # embedding and loss
            checked += 1
    assert checked


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


NEWER = ("recompute_layer", "context_parallel_size")
"""Degrees of nanotron 0.5, which has no package, that the 0.4 of the package index does not know."""


def _as_nanotron_04(data: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration without what came with 0.5: two degrees, and a section of its own for the optimizer."""
    for name in NEWER:
        del data["parallelism"][name]
    factory = data["optimizer"].pop("optimizer_factory")
    assert factory.pop("name") == "adamW"
    data["optimizer"].update(factory)
    return data


def _nanotron() -> Any:
    """Return nanotron's configuration module; its package imports itself in a circle, which a stand-in breaks."""
    the("nanotron")
    folder, stand_in = types.ModuleType("nanotron.config"), types.ModuleType("nanotron.config.config")
    folder.__path__ = []
    folder.ParallelismArgs = stand_in.LoggingArgs = object  # type: ignore[attr-defined]  # only names of annotations
    sys.modules.update({"nanotron.config": folder, "nanotron.config.config": stand_in})
    try:
        the("nanotron.logging")
    finally:
        for name in ("nanotron.config", "nanotron.config.config"):
            sys.modules.pop(name, None)
    return the("nanotron.config.config")


def test_nanotron_reads_the_yaml() -> None:
    config = _nanotron()
    old = "recompute_layer" not in {field.name for field in dataclasses.fields(config.ParallelismArgs)}
    for launch, files in expressed("nanotron"):
        data = yaml.safe_load(files["nanotron.yaml"])
        data = _as_nanotron_04(data) if old else data
        read = config.get_config_from_dict(data, config_class=config.Config)
        degrees = read.parallelism
        s = launch.strategy
        assert (degrees.dp, degrees.tp, degrees.pp, degrees.expert_parallel_size) == (s.dp, s.tp, s.pp, s.ep)
        assert read.tokens.micro_batch_size == s.mbs


MODELS = ("LlamaConfig", "MistralConfig", "MixtralConfig", "Qwen2Config", "Qwen3Config", "Qwen3MoeConfig", "GPT2Config")


@pytest.mark.parametrize("name", (*MODELS, "GPTNeoXConfig", "DeepseekV3Config", "Gemma2Config", "Phi3Config"))
def test_transformers_configs_are_models(name: str, tmp_path: Path) -> None:
    config = getattr(the("transformers"), name)(architectures=[name.replace("Config", "ForCausalLM")])
    path = tmp_path / "config.json"
    config.to_json_file(str(path), use_diff=False)
    model = resolve_model(str(path)).model
    assert model.layer_count == config.num_hidden_layers and model.hidden == config.hidden_size
    assert model.vocab == config.vocab_size


def test_olmo_core_builds_the_configurations() -> None:
    the("olmo_core")
    seen = 0
    for launch, files in expressed("olmo-core"):
        s = launch.strategy
        module = types.ModuleType("written")
        exec(compile(files["olmo_core_train.py"], "written", "exec"), module.__dict__)  # forerun's own file
        training = module.train_module_config()
        assert module.GLOBAL_BATCH_SIZE == launch.workload.global_batch * launch.workload.seq_len
        assert training.rank_microbatch_size == s.mbs * launch.workload.seq_len
        assert module.model_config().num_params == parameter_count(launch.model)
        assert (training.pp_config.degree if training.pp_config else 1) == s.pp
        if training.dp_config is not None and s.copies > 1 and s.zero:
            assert training.dp_config.get_replicate_and_shard_degree(s.dp)[0] == s.copies
        seen += 1
    assert seen >= TWENTY


def test_axolotl_validates_the_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = the("axolotl.utils.schemas.config")
    monkeypatch.setitem(sys.modules, "ring_flash_attn", types.ModuleType("ring_flash_attn"))  # needs a GPU to install
    for launch, files in expressed("axolotl"):
        s = launch.strategy
        read = schema.AxolotlInputConfig(**yaml.safe_load(files["axolotl.yaml"]))
        assert (read.micro_batch_size, read.sequence_len) == (s.mbs, launch.workload.seq_len)
        assert ((read.tensor_parallel_size or 1), (read.context_parallel_size or 1)) == (s.tp, s.cp)
        assert not s.zero or read.dp_shard_size * read.dp_replicate_size == s.dp


def test_llama_factory_parses_the_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISABLE_VERSION_CHECK", "1")
    parser = the("llamafactory.hparams.parser")
    monkeypatch.chdir(tmp_path)
    for launch, files in expressed("llama-factory"):
        data = yaml.safe_load(files["llama_factory.yaml"])
        for name in ("bf16", "fp16", "deepspeed"):  # need a GPU and the package
            data.pop(name, None)
        _, _, training, *_ = the("transformers").HfArgumentParser(parser._TRAIN_ARGS).parse_dict(data)
        assert training.per_device_train_batch_size == launch.strategy.mbs
        assert training.gradient_accumulation_steps == launch.microbatches
