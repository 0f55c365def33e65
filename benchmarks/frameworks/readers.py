"""A reader for each format: the framework's own parser takes the files of a launch, and what it read is the launch.

Each raises whatever the framework raises, or AssertionError where it read something else. A framework that is not
installed is an ImportError.
"""

import dataclasses
import functools
import importlib
import json
import math
import os
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from benchmarks.frameworks.megatron import read_megatron_bridge, read_megatron_lm
from benchmarks.frameworks.stand_in import stand_ins
from forerun.search.formats.contract import Launch
from forerun.spaces.models.parameters import parameter_count

_NEW_IN_NANOTRON_05 = ("recompute_layer", "context_parallel_size")
"""Degrees of nanotron 0.5, which has no package, that the 0.4 of the package index does not know."""


def _accelerate(name: str) -> Callable[[Launch, Mapping[str, str], Path], None]:
    def read(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
        config_args = importlib.import_module("accelerate.commands.config.config_args")
        command = importlib.import_module("accelerate.commands.launch")
        path = folder / "accelerate.yaml"
        path.write_text(files[f"{name}.yaml"])
        config = config_args.load_config_from_file(str(path))
        assert config.num_processes == launch.strategy.devices
        arguments = command.launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
        arguments, _, _ = command._validate_launch_command(arguments)
        if launch.strategy.zero and name == "accelerate-fsdp":
            assert arguments.parallelism_config_dp_shard_size == launch.strategy.dp // launch.strategy.copies
            parallelism = importlib.import_module("accelerate.parallelism_config")
            degrees = {key.removeprefix("parallelism_config_"): v for key, v in config.parallelism_config.items()}
            assert parallelism.ParallelismConfig(**degrees).total_size == launch.strategy.devices
        if name == "accelerate-megatron":
            assert arguments.megatron_lm_pp_degree == launch.strategy.pp

    return read


class _Replicas:
    """What DeepSpeed asks a model-parallel unit for."""

    def __init__(self, count: int) -> None:
        self.count = count

    def get_data_parallel_world_size(self) -> int:
        return self.count


def _deepspeed(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    config = importlib.import_module("deepspeed.runtime.config")
    tensor = importlib.import_module("deepspeed.runtime.tensor_parallel.config")
    expert = importlib.import_module("deepspeed.module_inject.auto_ep_config")
    s, data = launch.strategy, json.loads(files["ds_config.json"])
    with mock.patch.object(config.dist, "get_rank", lambda: 0):
        read = config.DeepSpeedConfig(data, mpu=_Replicas(s.dp))  # checks that the batches multiply
    assert read.zero_optimization_stage == s.zero
    assert read.train_batch_size == launch.workload.global_batch
    assert read.train_micro_batch_size_per_gpu == s.mbs
    if "tensor_parallel" in data:
        assert tensor.get_tensor_parallel_config(data).autotp_size == s.tp
    if "expert_parallel" in data:
        parsed = expert.parse_autoep_config(data["expert_parallel"])
        degrees = {"world_size": s.devices, "pp_size": 1, "tp_size": s.tp, "sp_size": 1}
        expert.validate_autoep_config(parsed, **degrees, zero_stage=s.zero)


def _torchtitan_toml(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    manager = importlib.import_module("torchtitan.config.manager")
    importlib.import_module("torchtitan.config.job_config")  # versions after 0.2.2 read no TOML
    path = folder / "torchtitan.toml"
    path.write_text(files["torchtitan.toml"])
    config = manager.ConfigManager().parse_args(["--job.config_file", str(path)])
    assert config.parallelism.tensor_parallel_degree == launch.strategy.tp
    assert config.parallelism.pipeline_parallel_degree == launch.strategy.pp
    assert config.training.global_batch_size == launch.workload.global_batch


def _torchtitan_python(main: bool) -> Callable[[Launch, Mapping[str, str], Path], None]:
    def read(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
        configs = importlib.import_module("torchtitan.config.configs")
        importlib.import_module("torchtitan.trainer")
        tokens = "num_tokens_per_train_step" in {field.name for field in dataclasses.fields(configs.TrainingConfig)}
        if tokens != main:
            raise ImportError("another version of torchtitan is installed")
        config = _run(files["torchtitan_config.py"]).forerun_config()
        s, degrees = launch.strategy, config.parallelism
        assert degrees.tensor_parallel_degree == s.tp and degrees.pipeline_parallel_degree == s.pp
        # What the trainer builds before it needs devices: an abstract loss or an empty optimizer would stop it there.
        assert config.loss.build(compile_config=config.compile) is not None
        assert config.optimizer.param_groups

    return read


def _run(text: str) -> Any:
    """Return a Python file that forerun wrote as a module."""
    module = types.ModuleType("written")
    exec(compile(text, "written", "exec"), module.__dict__)
    return module


@functools.cache
def _nanotron_config() -> Any:
    """Return nanotron's configuration module; its package imports itself in a circle, which a stand-in breaks."""
    importlib.import_module("nanotron")
    inner, stand_in = types.ModuleType("nanotron.config"), types.ModuleType("nanotron.config.config")
    inner.__path__ = []
    inner.ParallelismArgs = stand_in.LoggingArgs = object  # type: ignore[attr-defined]  # only names of annotations
    sys.modules.update({"nanotron.config": inner, "nanotron.config.config": stand_in})
    try:
        importlib.import_module("nanotron.logging")
    finally:
        for name in ("nanotron.config", "nanotron.config.config"):
            sys.modules.pop(name, None)
    return importlib.import_module("nanotron.config.config")


def _nanotron(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    config, data, s = _nanotron_config(), yaml.safe_load(files["nanotron.yaml"]), launch.strategy
    if "recompute_layer" not in {field.name for field in dataclasses.fields(config.ParallelismArgs)}:
        for name in _NEW_IN_NANOTRON_05:
            del data["parallelism"][name]
        factory = data["optimizer"].pop("optimizer_factory")
        assert factory.pop("name") == "adamW"
        data["optimizer"].update(factory)
    read = config.get_config_from_dict(data, config_class=config.Config)
    degrees = read.parallelism
    assert (degrees.dp, degrees.tp, degrees.pp, degrees.expert_parallel_size) == (s.dp, s.tp, s.pp, s.ep)
    assert read.tokens.micro_batch_size == s.mbs


def _olmo_core(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    importlib.import_module("olmo_core")
    s, module = launch.strategy, _run(files["olmo_core_train.py"])
    training = module.train_module_config()
    assert module.GLOBAL_BATCH_SIZE == launch.workload.global_batch * launch.workload.seq_len
    assert training.rank_microbatch_size == s.mbs * launch.workload.seq_len
    assert module.model_config().num_params == parameter_count(launch.model)
    assert (training.pp_config.degree if training.pp_config else 1) == s.pp
    if training.dp_config is not None and s.copies > 1 and s.zero:
        assert training.dp_config.get_replicate_and_shard_degree(s.dp)[0] == s.copies


def _axolotl(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    schema = importlib.import_module("axolotl.utils.schemas.config")
    s = launch.strategy
    needs_a_gpu = {"ring_flash_attn": types.ModuleType("ring_flash_attn")}
    with mock.patch.dict(sys.modules, needs_a_gpu):
        read = schema.AxolotlInputConfig(**yaml.safe_load(files["axolotl.yaml"]))
    assert (read.micro_batch_size, read.sequence_len) == (s.mbs, launch.workload.seq_len)
    assert ((read.tensor_parallel_size or 1), (read.context_parallel_size or 1)) == (s.tp, s.cp)
    assert not s.zero or read.dp_shard_size * read.dp_replicate_size == s.dp


def _llama_factory(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    with mock.patch.dict(os.environ, {"DISABLE_VERSION_CHECK": "1"}):
        parser = importlib.import_module("llamafactory.hparams.parser")
    data = yaml.safe_load(files["llama_factory.yaml"])
    for name in ("bf16", "fp16", "deepspeed"):  # need a GPU and the package
        data.pop(name, None)
    data["output_dir"] = str(folder)
    read = importlib.import_module("transformers").HfArgumentParser(parser._TRAIN_ARGS).parse_dict(data)
    assert read[2].per_device_train_batch_size == launch.strategy.mbs
    assert read[2].gradient_accumulation_steps == launch.microbatches


_WITHOUT_MAXTEXT = ("aqt", "chex", "etils", "flax", "google.cloud", "grain", "optax", "orbax", "pathwaysutils", "qwix")


@functools.cache
def _maxtext_config() -> Any:
    """Return MaxText's reader of configurations, without packages that only its trainer calls."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    importlib.import_module("maxtext")
    with stand_ins(*_WITHOUT_MAXTEXT, "tensorboardX", "tensorflow", "tokamax"):
        return importlib.import_module("maxtext.configs.pyconfig")


def _maxtext(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    config, s, path = _maxtext_config(), launch.strategy, folder / "maxtext.yml"
    path.write_text(files["maxtext.yml"])
    devices = mock.patch.object(config.types.jax, "devices", lambda *_: [mock.Mock(slice_index=0)] * s.devices)
    with devices:
        read = config.initialize_pydantic(["", str(path)], log_config=False, skip_jax_distributed_system=True)
    names = [axis for axis in ("tensor", "tensor_sequence") if axis in read.mesh_axes]
    assert math.prod(getattr(read, f"ici_{name}_parallelism") for name in names) == s.tp
    assert math.prod(read.ici_parallelism) * math.prod(read.dcn_parallelism) == s.devices
    assert (read.ici_pipeline_parallelism, read.ici_context_parallelism) == (s.pp, s.cp)
    steps = read.gradient_accumulation_steps
    assert read.per_device_batch_size * s.devices * steps == launch.workload.global_batch
    assert s.pp == 1 or read.num_pipeline_microbatches == launch.microbatches
    assert (read.base_emb_dim, read.base_num_decoder_layers) == (launch.model.hidden, launch.model.layer_count)


READERS: Mapping[str, Callable[[Launch, Mapping[str, str], Path], None]] = {
    "megatron-lm": read_megatron_lm,
    "megatron-bridge": read_megatron_bridge,
    "torchtitan": _torchtitan_python(main=True),
    "torchtitan-0.3": _torchtitan_python(main=False),
    "torchtitan-toml": _torchtitan_toml,
    "deepspeed": _deepspeed,
    "accelerate-fsdp": _accelerate("accelerate-fsdp"),
    "accelerate-megatron": _accelerate("accelerate-megatron"),
    "nanotron": _nanotron,
    "olmo-core": _olmo_core,
    "axolotl": _axolotl,
    "llama-factory": _llama_factory,
    "maxtext": _maxtext,
}
"""By format: what has its framework read the files of a launch; the folder is for it to write in."""
