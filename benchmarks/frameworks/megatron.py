"""Megatron-LM's and Megatron-Bridge's scripts, as megatron-core and Megatron-Bridge take their settings.

Megatron-LM itself is in no package: the arguments of a script become the dataclasses that its
``core_transformer_config_from_args`` and its optimizer make of them, with megatron-core's own checks; names and choices
of arguments are compared with ``megatron/training/arguments.py`` where a copy is given.
"""

import ast
import dataclasses
import functools
import importlib
import os
import typing
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.frameworks.megatron_arguments import validated
from benchmarks.frameworks.scripts import options, started
from benchmarks.frameworks.stand_in import stand_ins
from forerun.search.formats.contract import Launch
from forerun.search.formats.megatron_hybrid import pattern_of
from forerun.search.formats.model_facts import last_of
from forerun.search.formats.software import assumed
from forerun.spaces.models.model import MixtureOfExperts
from forerun.spaces.strategies import MODULES, Recompute, Strategy

RENAMED = {
    "num_experts": "num_moe_experts",
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "fp8_format": "fp8",
    "fp4_format": "fp4",
    "fp8_param_gather": "fp8_param",
    "te_rng_tracker": "use_te_rng_tracker",
}
"""Arguments of Megatron-LM: fields of the configuration that they fill."""
TURNED_OFF = {
    "disable_bias_linear": "add_bias_linear",
    "no_gradient_accumulation_fusion": "gradient_accumulation_fusion",
    "no_overlap_p2p_communication": "overlap_p2p_comm",
}
OF_TRAINING = frozenset(
    "micro_batch_size global_batch_size train_iters lr min_lr lr_decay_style weight_decay clip_grad log_interval "
    "log_throughput eval_iters mock_data tokenizer_type vocab_size split seq_length max_position_embeddings "
    "position_embedding_type swiglu group_query_attention untie_embeddings_and_output_weights use_tp_pp_dp_mapping "
    "no_create_attention_mask_in_dataloader multi_latent_attention no_check_for_nan_in_loss_and_grad "
    "hybrid_layer_pattern spec squared_relu".split()
)
"""Arguments of a script that no configuration of megatron-core has."""
NO_GPU = ("transformer_engine", "mamba_ssm", "causal_conv1d", "wandb", "modelopt", "fla", "qwen_vl_utils", "timm")
NO_GPU += ("open_clip", "mlflow", "megatron.energon", "nvidia_resiliency_ext", "tensorboard")
"""Packages that Megatron-Bridge imports and that need a GPU, or do nothing for a configuration."""


def _value(words: list[str]) -> Any:
    if not words:
        return True
    read = [_literal(word) for word in words]
    return read if len(read) > 1 else read[0]


def _literal(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except (SyntaxError, ValueError):
        return word


def read_megatron_lm(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    """Have Megatron-LM, where its wheel has it, else megatron-core check the arguments that a script gives to its
    program."""
    words, variables = started(dict(files), folder)
    if (read := validated(words, variables, devices=launch.strategy.devices, name=_gpu(launch))) is not None:
        _same_run(*read, launch)
        return
    configs = importlib.import_module("megatron.core.transformer.transformer_config")
    optimizers = importlib.import_module("megatron.core.optimizer.optimizer_config")
    replicas = importlib.import_module("megatron.core.distributed.distributed_data_parallel_config")
    asked = options(words)
    if (path := os.environ.get("MEGATRON_ARGUMENTS")) is not None:
        _compare(asked, _arguments(Path(path)))
    given = {RENAMED.get(name, name): _value(value) for name, value in asked.items()}
    given |= {TURNED_OFF[name]: False for name in asked if name in TURNED_OFF}
    kind = configs.MLATransformerConfig if "multi_latent_attention" in given else configs.TransformerConfig
    fields = {name: {field.name for field in dataclasses.fields(name)} for name in _kinds(kind, optimizers, replicas)}
    unknown = given.keys() - set().union(*fields.values()) - OF_TRAINING - TURNED_OFF.keys() - {"grad_reduce_in_bf16"}
    assert not unknown, f"no configuration of megatron-core has {sorted(unknown)}"
    with mock.patch.dict(os.environ, variables, clear=True), _transformer_engine():
        model = kind(**_transformer(given, fields[kind]))
        _optimizer(given, optimizers.OptimizerConfig, fields[optimizers.OptimizerConfig])
        replicas.DistributedDataParallelConfig(
            grad_reduce_in_fp32="grad_reduce_in_bf16" not in given,
            **{name: given[name] for name in given.keys() & fields[replicas.DistributedDataParallelConfig]},
        )
    _check_program(given, variables)
    _same_degrees(model, launch)


@contextmanager
def _transformer_engine() -> Iterator[None]:
    """Let megatron-core believe in a Transformer Engine that is new enough for its checks, and in its optimizer."""

    def adam(*, master_weight_dtype: Any, exp_avg_dtype: Any, exp_avg_sq_dtype: Any, use_decoupled_grad: Any) -> None:
        """Stand for what is only asked for its arguments."""

    with ExitStack() as held:
        for part in ("transformer.transformer_config", "optimizer.optimizer_config"):
            held.enter_context(mock.patch(f"megatron.core.{part}.is_te_min_version", lambda *_, **__: True))
        with stand_ins("transformer_engine"):
            importlib.import_module("transformer_engine.pytorch.optimizers").FusedAdam = adam  # type: ignore[attr-defined]
        yield


def _kinds(model: Any, optimizers: Any, replicas: Any) -> tuple[Any, ...]:
    return model, optimizers.OptimizerConfig, replicas.DistributedDataParallelConfig


def _transformer(given: Mapping[str, Any], fields: set[str]) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    enums = importlib.import_module("megatron.core.transformer.enums")
    found = {name: value for name, value in given.items() if name in fields}
    if "swiglu" in given:
        found |= {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu}
    if backend := found.get("attention_backend"):
        found["attention_backend"] = enums.AttnBackend[backend]
    for name in ("recompute_modules", "cuda_graph_scope", "offload_modules"):
        if isinstance(found.get(name), str):
            found[name] = [found[name]]
    for name in ("moe_layer_freq", "linear_attention_freq"):
        if isinstance(given.get(name), str):
            found[name] = eval(given[name], {"__builtins__": {}})  # forerun wrote it
    if "multi_latent_attention" not in given:
        found.pop("apply_rope_fusion", None)
    half = torch.bfloat16 if "bf16" in given else torch.float16 if "fp16" in given else torch.float32
    layout = found.get("pipeline_model_parallel_layout")
    if layout is not None:  # validate_args
        stages = importlib.import_module("megatron.core.transformer.pipeline_parallel_layer_layout")
        count = stages.PipelineParallelLayerLayout.get_num_stages_from_str(layout)
        ranks = found["pipeline_model_parallel_size"]
        assert count % ranks == 0
        if count > ranks:
            found["virtual_pipeline_model_parallel_size"] = count // ranks
    if (bars := str(given.get("hybrid_layer_pattern", "")).count("|")) >= 2 * found["pipeline_model_parallel_size"] - 1:
        found["virtual_pipeline_model_parallel_size"] = (bars + 1) // found["pipeline_model_parallel_size"]
    found.setdefault("overlap_p2p_comm", found.get("virtual_pipeline_model_parallel_size", 1) > 1)
    return found | {"params_dtype": half, "pipeline_dtype": half, "batch_p2p_comm": not found["overlap_p2p_comm"]}


def _optimizer(given: Mapping[str, Any], kind: Any, fields: set[str]) -> None:
    torch = importlib.import_module("torch")
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.uint8}
    found = {name: kinds.get(value, value) if name.endswith("_dtype") else value for name, value in given.items()}
    kind(**{name: value for name, value in found.items() if name in fields})


def _check_program(given: Mapping[str, Any], variables: Mapping[str, str]) -> None:
    """Laws of ``validate_args`` that no configuration of megatron-core checks."""
    assert given["max_position_embeddings"] >= given["seq_length"]
    ranks = given["context_parallel_size"]
    assert ranks == 1 or given["seq_length"] % (2 * ranks) == 0
    if given["tensor_model_parallel_size"] > 1 or ranks > 1:
        assert variables.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"
    assert given.get("attention_backend") != "local" or given.get("spec") == "local"
    if "overlap_param_gather" in given:
        assert "use_distributed_optimizer" in given and "overlap_grad_reduce" in given
    if "full_iteration" in str(given.get("cuda_graph_scope")):
        assert "no_check_for_nan_in_loss_and_grad" in given
    if "cuda_graph_impl" in given and "expandable_segments:True" in variables.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        assert variables.get("NCCL_GRAPH_REGISTER") == "0"  # cuda_graphs.py
    if "fine_grained_activation_offloading" in given:
        assert variables.get("NVTE_CPU_OFFLOAD_V1") == "1"  # Transformer Engine from 2.10 on
    assert "optimizer_cpu_offload" not in given or "use_precision_aware_optimizer" in given
    if "fp8_param" in given:
        assert "use_distributed_optimizer" in given
        assert "optimizer_cpu_offload" not in given or given.get("fp8_recipe", "delayed") == "delayed"
    assert "moe_grouped_gemm" not in given or "bf16" in given
    assert "tp_comm_overlap" not in given or given.get("sequence_parallel")


def _same_run(args: Any, model: Any, launch: Launch) -> None:
    """Assert that validated arguments are those of a launch."""
    s = launch.strategy
    _same_degrees(model, launch)
    assert (args.data_parallel_size, args.micro_batch_size) == (s.dp, s.mbs)
    assert (args.global_batch_size, args.seq_length) == (launch.workload.global_batch, launch.workload.seq_len)
    shared = args.use_distributed_optimizer or args.use_layer_wise_distributed_optimizer  # the latter: Muon's
    assert s.dp * s.cp == 1 or shared == bool(s.zero)
    assert bool(args.sequence_parallel) == s.sp
    settings = assumed(launch, "megatron-lm")
    found = {
        "overlap-grad-reduce": args.overlap_grad_reduce,
        "overlap-param-gather": args.overlap_param_gather,
        "bf16-grads": args.grad_reduce_in_bf16,
        "tp-comm-overlap": model.tp_comm_overlap,
        "moe-overlap": model.overlap_moe_expert_parallel_comm,
        "cross-entropy-fusion": model.cross_entropy_loss_fusion,
        "grouped-gemm": model.moe_grouped_gemm,
        "fp8-params": bool(model.fp8_param),
        "shared-expert-overlap": model.moe_shared_expert_overlap,
    }
    wrong = {name: value for name, value in found.items() if name in settings and value != (settings[name] == "on")}
    assert not wrong, f"instead of {settings} it runs {wrong}"


def _same_degrees(model: Any, launch: Launch) -> None:
    """Assert that a configuration has the degrees and the recompute of a launch."""
    s = launch.strategy
    assert model.tensor_model_parallel_size == s.tp and model.pipeline_model_parallel_size == s.pp
    assert model.context_parallel_size == s.cp and (model.virtual_pipeline_model_parallel_size or 1) == s.vpp
    assert not s.ep > 1 or model.expert_model_parallel_size == s.ep
    modules = {name for name, module in MODULES.items() if s.recompute & module}
    if modules:
        assert model.recompute_granularity == "selective" and set(model.recompute_modules) == modules
    elif s.recompute == Recompute.NONE:
        assert model.recompute_granularity is None
    else:
        assert model.recompute_granularity == "full" and model.recompute_num_layers == (abs(s.recompute_layers) or 1)


@functools.cache
def _arguments(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the arguments that a copy of ``arguments.py`` adds, each with its choices ("": any)."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            choices = next((word.value for word in node.keywords if word.arg == "choices"), None)
            listed = [item.value for item in getattr(choices, "elts", []) if isinstance(item, ast.Constant)]
            for name in node.args:
                if isinstance(name, ast.Constant):
                    found[str(name.value).removeprefix("--").replace("-", "_")] = tuple(map(str, listed))
    return found


def _compare(asked: Mapping[str, list[str]], known: Mapping[str, tuple[str, ...]]) -> None:
    """Assert that ``arguments.py``, or a dataclass that it makes arguments of, has all arguments of a script."""
    config = importlib.import_module("megatron.core.transformer.transformer_config").MLATransformerConfig
    made = {field.name for field in dataclasses.fields(config)}
    for name, values in asked.items():
        assert name in known or name in made, f"arguments.py has no --{name.replace('_', '-')}"
        choices = known.get(name, ())
        assert not choices or set(values) <= set(choices), f"--{name.replace('_', '-')} is one of {choices}: {values}"


def read_megatron_bridge(launch: Launch, files: Mapping[str, str], folder: Path) -> None:
    """Have Megatron-Bridge apply a script's overrides, and the YAML, to a recipe's configuration, and validate it.

    Two recipes: one has its precision and overlaps as names or not at all, the other as values of their own.
    """
    with stand_ins(*NO_GPU):
        config = _bridge()
        overriding = importlib.import_module("megatron.bridge.training.utils.omegaconf_utils")
    words, variables = started(dict(files), folder)
    words = words[words.index("--recipe") + 2 :] if "--recipe" in words else words
    variables |= {"WORLD_SIZE": str(launch.strategy.devices)}
    for explicit, in_document in ((False, False), (True, False), (False, True)):
        with mock.patch.dict(os.environ, variables, clear=True), _transformer_engine(), _a_gpu(launch):
            container = _recipe(config, launch, explicit=explicit)
            document = folder / "older.yaml"
            text = files["megatron-bridge.yaml"]
            older = text.replace("dataset:\n  seq_length", "dataset:\n  sequence_length") if _before_04() else text
            document.write_text(older)
            how = {"config_filepath": str(document)} if in_document else {"cli_overrides": [*map(_older, words)]}
            overriding.process_config_with_overrides(container, **how)
            config.runtime_config_update(container)
        _same_degrees(container.model, launch)
        _same_software(container, launch)


@functools.cache
def _bridge() -> Any:
    if not hasattr(typing, "override"):  # of Python 3.12, on which all but the oldest are said to run alone
        typing.override = lambda method: method  # type: ignore[attr-defined]
    for name in ("megatron.core", "megatron.core.models.gpt.gpt_layer_specs"):
        importlib.import_module(name)
    return importlib.import_module("megatron.bridge.training.config")


def _older(word: str) -> str:
    """Return an override as the installed version has it: before 0.4 sequences have another name."""
    return word.replace("dataset.seq_length=", "dataset.sequence_length=") if _before_04() else word


def _before_04() -> bool:
    return importlib.import_module("megatron.bridge.package_info").__version__.startswith("0.3")


def _gpu(launch: Launch) -> str:
    return "NVIDIA GB200" if launch.switches.get("dispatcher") == "hybridep" else "NVIDIA H100"


def _a_gpu(launch: Launch) -> Any:
    name = _gpu(launch)
    told = mock.Mock(major=10 if "GB200" in name else 9, minor=0)
    told.name = name
    return mock.patch("torch.cuda.get_device_properties", lambda *_: told)


def _recipe(config: Any, launch: Launch, *, explicit: bool) -> Any:
    """Return a container as recipes build it, for a model of the launch's size."""
    with stand_ins(*NO_GPU):
        providers = importlib.import_module("megatron.bridge.models.gpt_provider")
        latent = importlib.import_module(
            f"megatron.bridge.models.{'deepseek.deepseek' if _before_04() else 'mla'}_provider"
        )
        tokenizers = importlib.import_module("megatron.bridge.training.tokenizers.config")
        mixed = importlib.import_module("megatron.bridge.training.mixed_precision")
        overlap = importlib.import_module("megatron.bridge.training.comm_overlap")
    model = launch.model
    attention, mlp, _ = last_of(model)
    size: dict[str, Any] = {
        "num_layers": model.layer_count,
        "hidden_size": model.hidden,
        "num_attention_heads": attention.heads if attention is not None else 1,
        "vocab_size": model.vocab,
        "seq_length": 8192,
        "mtp_num_layers": model.mtp_layers or None,
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "recompute_granularity": "full",  # what a recipe has is turned off by name
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    }
    if isinstance(mlp, MixtureOfExperts):
        size |= {"num_moe_experts": mlp.experts, "moe_router_topk": mlp.top_k, "moe_ffn_hidden_size": mlp.expert_hidden}
        size |= {"moe_shared_expert_intermediate_size": mlp.shared_hidden or None, "add_bias_linear": False}
    provider = providers.GPTModelProvider
    if model.hybrid:
        with stand_ins(*NO_GPU):
            provider = importlib.import_module("megatron.bridge.models.hybrid.hybrid_provider").HybridModelProvider
        size |= {"hybrid_layer_pattern": pattern_of(model, Strategy()), "is_hybrid_model": True}
    if attention is not None and attention.latent is not None:
        provider = latent.DeepSeekModelProvider if _before_04() else latent.MLAModelProvider
        size |= {"multi_latent_attention": True, "apply_rope_fusion": False}
    elif attention is not None:
        size["num_query_groups"] = attention.kv_heads
    return config.ConfigContainer(
        model=provider(**size),
        train=config.TrainingConfig(train_iters=100, micro_batch_size=1, global_batch_size=64),
        optimizer=config.OptimizerConfig(
            optimizer="adam", lr=1e-4, min_lr=1e-5, use_distributed_optimizer=True, bf16=True
        ),
        ddp=config.DistributedDataParallelConfig(
            use_distributed_optimizer=True, overlap_param_gather=True, overlap_grad_reduce=True
        ),
        scheduler=config.SchedulerConfig(lr_decay_style="cosine", lr_warmup_iters=0),
        dataset=config.MockGPTDatasetConfig(
            random_seed=1, reset_attention_mask=False, reset_position_ids=False, eod_mask_loss=False, seq_length=8192
        ),
        logger=config.LoggerConfig(),
        tokenizer=tokenizers.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=model.vocab),
        checkpoint=config.CheckpointConfig(),
        mixed_precision=mixed.bf16_mixed() if explicit else "bf16_mixed",
        comm_overlap=overlap.CommOverlapConfig(tp_comm_overlap=True) if explicit else None,
    )


def _same_software(container: Any, launch: Launch) -> None:
    """Assert that what runs is what was predicted, after all that one section does to another."""
    settings = assumed(launch, "nemo")
    model, replicas = container.model, container.ddp
    found = {
        "overlap-grad-reduce": replicas.overlap_grad_reduce,
        "overlap-param-gather": replicas.overlap_param_gather,
        "bf16-grads": not replicas.grad_reduce_in_fp32,
        "tp-comm-overlap": model.tp_comm_overlap,
        "moe-overlap": model.overlap_moe_expert_parallel_comm,
        "cross-entropy-fusion": model.cross_entropy_loss_fusion,
        "grouped-gemm": model.moe_grouped_gemm,
        "fp8-params": bool(model.fp8_param),
    }
    host = container.optimizer.optimizer_offload_fraction if container.optimizer.optimizer_cpu_offload else 0
    assert {"on": "1", "off": "0"}.get(held := settings.get("optimizer-offload", "off"), held) == f"{host:g}"
    wrong = {name: value for name, value in found.items() if name in settings and value != (settings[name] == "on")}
    assert not wrong, f"instead of {settings} it runs {wrong}"
    if "dispatcher" in settings:
        backend = model.moe_flex_dispatcher_backend if model.moe_token_dispatcher_type == "flex" else None
        assert (backend or model.moe_token_dispatcher_type) == settings["dispatcher"]
    alone = launch.strategy.dp * launch.strategy.cp == 1
    assert alone or container.optimizer.use_distributed_optimizer == bool(launch.strategy.zero)
    assert container.train.micro_batch_size == launch.strategy.mbs
    assert container.train.global_batch_size == launch.workload.global_batch
    assert container.data_parallel_size == launch.strategy.dp
