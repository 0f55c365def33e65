"""OLMo-core 3: a training script whose configuration is built from its own classes."""

from typing import Any

from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.launchers import TORCHRUN, comment, scripts
from forerun.search.formats.limits_of_models import builds
from forerun.spaces.models.model import FeedForward
from forerun.spaces.strategies import Recompute
from forerun.spaces.strategies.axes import schedules_in

MAIN = "olmo_core_train.py"
SCHEDULES = schedules_in("olmo-core")
MODES = {Recompute.FULL: "full", Recompute.SELECTIVE: "budget"}


MODELS = builds(
    "the script builds Llama-like models",
    "experts",
    "latent attention",
    "layers of several kinds",
    "learned positions",
    "LayerNorm with biases",
    "an MLP of two matrices",
    "tied embeddings",
    "sliding windows",
    "norms after blocks",
    "extra predictions",
)


def write(launch: Launch) -> Files:
    """Return the script and its launch scripts."""
    s, workload = launch.strategy, launch.workload
    length = workload.seq_len
    module: dict[str, Any] = {
        "rank_microbatch_size": f"{s.mbs} * SEQUENCE_LENGTH",
        "max_sequence_length": "SEQUENCE_LENGTH",
        "optim": "AdamWConfig(lr=1e-4, weight_decay=0.1, betas=(0.9, 0.95), fused=True)",
        "compile_model": "True",
    }
    module |= _parallel(launch)
    lines = [
        f'"""OLMo-core 3: {s} ({s.devices} GPUs), written by forerun for {comment(launch.model.name)}."""',
        "",
        "from os import environ",
        "",
        *IMPORTS,
        "",
        f"SEQUENCE_LENGTH = {length}",
        f"GLOBAL_BATCH_SIZE = {workload.global_batch} * SEQUENCE_LENGTH",
        "",
        "",
        *_model(launch),
        "",
        "",
        "def train_module_config() -> TransformerTrainModuleConfig:",
        "    return TransformerTrainModuleConfig(",
        *(f"        {name}={value}," for name, value in module.items()),
        "    )",
        "",
        "",
        *RUN,
        "",
    ]
    return {MAIN: "\n".join(lines), **scripts(launch, "OLMo-core 3", [*TORCHRUN, MAIN])}


def _parallel(launch: Launch) -> dict[str, str]:
    """Return the configurations of the degrees, of recompute and of precision, as source."""
    s, precision = launch.strategy, launch.workload.precision
    found: dict[str, str] = {}
    dtype = "None" if precision == "fp32" else "DType.bfloat16"
    if s.zero and s.copies > 1:
        shard = s.dp * s.cp // s.copies
        found["dp_config"] = (
            f"TransformerDataParallelConfig(name=DataParallelType.hsdp, param_dtype={dtype}, num_replicas={s.copies}, "
            f"shard_degree={shard})"
        )
    elif s.dp * s.cp > 1 or s.zero:
        kind = "fsdp" if s.zero else "ddp"
        found["dp_config"] = f"TransformerDataParallelConfig(name=DataParallelType.{kind}, param_dtype={dtype})"
    if precision != "fp32":
        found["autocast_precision"] = "DType.bfloat16"
    if s.tp > 1:
        found["tp_config"] = f"TransformerTensorParallelConfig(degree={s.tp})"
    if s.pp > 1:
        schedule = f"PipelineScheduleType.{SCHEDULES[s.schedule]}"
        splits = _splits(launch)
        found["pp_config"] = (
            f"TransformerPipelineParallelConfig(degree={s.pp}, schedule={schedule}, split_points={splits})"
        )
    if s.recompute in MODES:
        budget = ", activation_memory_budget=0.5" if s.recompute == Recompute.SELECTIVE else ""
        mode = f"TransformerActivationCheckpointingMode.{MODES[s.recompute]}"
        found["ac_config"] = f"TransformerActivationCheckpointingConfig(mode={mode}{budget})"
    if precision == "fp8":
        found["float8_config"] = "Float8Config(enabled=True)"
    return found


def _splits(launch: Launch) -> list[int]:
    """Return the first layer of every stage but the first."""
    stages = launch.strategy.pp * launch.strategy.vpp
    each = launch.model.layer_count // stages
    return [each * stage for stage in range(1, stages)]


def _model(launch: Launch) -> list[str]:
    model, layer = launch.model, launch.model.layers[-1]
    assert isinstance(layer.mlp, FeedForward)
    sizes = {
        "d_model": model.hidden,
        "vocab_size": model.vocab,
        "n_layers": model.layer_count,
        "n_heads": layer.attention.heads,
        "n_kv_heads": layer.attention.kv_heads,
        "head_dim": layer.attention.head_dim,
        "qk_norm": layer.attention.query_key_norm,
        "use_head_qk_norm": layer.attention.query_key_norm,
        "feed_forward": f"FeedForwardConfig(hidden_size={layer.mlp.hidden}, bias=False)",
    }
    return [
        "def model_config() -> TransformerConfig:",
        "    return TransformerConfig.llama_like(",
        *(f"        {name}={value}," for name, value in sizes.items()),
        "    )",
    ]


IMPORTS = (
    "from olmo_core.config import DType",
    "from olmo_core.data import NumpyDataLoaderConfig, NumpyFSLDatasetConfig, TokenizerConfig",
    "from olmo_core.distributed.parallel import DataParallelType, PipelineScheduleType",
    "from olmo_core.float8 import Float8Config",
    "from olmo_core.nn.feed_forward import FeedForwardConfig",
    "from olmo_core.nn.transformer import TransformerConfig",
    "from olmo_core.optim import AdamWConfig",
    "from olmo_core.train import Duration, TrainerConfig, prepare_training_environment, teardown_training_environment",
    "from olmo_core.train.train_module import (",
    "    TransformerActivationCheckpointingConfig,",
    "    TransformerActivationCheckpointingMode,",
    "    TransformerDataParallelConfig,",
    "    TransformerPipelineParallelConfig,",
    "    TransformerTensorParallelConfig,",
    "    TransformerTrainModuleConfig,",
    ")",
)
RUN = (
    "def main() -> None:",
    "    tokenizer = TokenizerConfig.dolma2()",
    "    dataset = NumpyFSLDatasetConfig(",
    '        paths=environ["TOKEN_FILES"].split(),',
    "        sequence_length=SEQUENCE_LENGTH,",
    "        tokenizer=tokenizer,",
    '        work_dir="work",',
    "    )",
    "    loader = NumpyDataLoaderConfig(global_batch_size=GLOBAL_BATCH_SIZE, seed=0)",
    '    trainer = TrainerConfig(save_folder="checkpoints", max_duration=Duration.steps(100))',
    '    train_module = train_module_config().build(model_config().build(init_device="meta"))',
    "    batches = loader.build(dataset.build(), dp_process_group=train_module.dp_process_group)",
    "    trainer.build(train_module, batches).fit()",
    "",
    "",
    'if __name__ == "__main__":',
    "    prepare_training_environment()",
    "    main()",
    "    teardown_training_environment()",
)
