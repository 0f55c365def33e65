"""OLMo-core 3: a training script, overrides on its command line, or a run's ``config.json``.

Source: ``TransformerTrainModuleConfig`` and the configurations in it, ``olmo_core/internal/experiment.py`` of 3.0.0.
Batches count tokens. FSDP gathers parameters again in the backward pass unless there is a pipeline.
"""

from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import Files, Launch, LaunchFile
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import REST, LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.launchers import TORCHRUN, comment, scripts
from forerun.search.formats.limits import COMMON, SHARED_BY_WHOLE_REPLICAS, only, precisions, when
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.limits_of_models import builds, decoders_only
from forerun.search.formats.python_text import PythonReader, keywords, parse_python
from forerun.search.formats.syntax import document, is_yaml, overrides
from forerun.search.formats.tables.limits_of import NO_DIVIDING, ONE_STAGE_SPLIT, no_zero
from forerun.search.formats.templates import filled
from forerun.spaces.models.model import FeedForward
from forerun.spaces.strategies import Recompute, Schedule
from forerun.spaces.strategies.axes import schedules_in

MAIN = "olmo_core_train.py"
WRITTEN_SCHEDULES = schedules_in("olmo-core")
WRITTEN_MODES = {Recompute.FULL: "full", Recompute.SELECTIVE: "budget"}

SECTIONS = ("train_module", "trainer", "data_loader", "dataset", "launch", "model", "config", "experiment")


def read(source: LaunchFile) -> Mapping[str, Any]:
    """Return the settings of a script, of its command line, or of a saved configuration, without section names."""
    settings: dict[str, Any] = {}
    if source.suffix == ".py":
        tree = parse_python(source.text, source.name)
        settings = keywords(tree, PythonReader(tree))
        sizes = {name: settings.get(name.upper()) for name in ("sequence_length", "global_batch_size")}
        settings |= {name: value for name, value in sizes.items() if value is not None and name not in settings}
    elif is_yaml(source) or source.suffix == ".json":
        settings = dict(document(source))
    for name in source.scripts:
        settings |= overrides(source, name)
    return {_plain(key): value for key, value in settings.items()}


def _plain(key: str) -> str:
    section, _, name = key.partition(".")
    return _plain(name) if section.removesuffix("_config") in SECTIONS and name else key


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding, its replicas, and recompute from its modes."""
    settings = facts.settings
    kind = settings.one_of("dp_config.name", ("fsdp", "hsdp", "ddp"))
    if kind in ("fsdp", "hsdp"):
        facts.values["zero"] = 2 if facts.get("pp", 1) > 1 else 3
        facts.stated.add("zero")
    if kind == "hsdp" and facts.get("nodes", 1) > 1 and not facts.stated & {"shard", "replicate"}:
        facts.values |= {"replicate": facts.get("nodes"), "shard": REST}
    elif kind == "hsdp" and facts.get("shard") is not None:
        facts.values.setdefault("replicate", REST)
    elif kind == "hsdp" and facts.get("replicate") is None:
        facts.notes.append("hsdp shards within nodes where no degree is stated; read as sharded over all replicas")
    elif kind == "fsdp":
        facts.values.pop("replicate", None)
    if facts.get("replicate", 1) > 1 and facts.get("shard") is None:
        facts.values["shard"] = REST
    facts.values["sp"] = facts.get("tp", 1) > 1
    points = settings.raw("pp_config.split_points")
    if isinstance(points, list) and (len(points) + 1) % facts.get("pp", 1) == 0:
        facts.values["vpp"] = (len(points) + 1) // facts.get("pp", 1)
    mode = settings.text("ac_config.mode", "ac_config.0")
    if mode == "selected_blocks":
        facts.notes.append("recompute of selected blocks is read as recompute=full: of all layers")
    elif mode is not None and facts.get("recompute") == Recompute.SELECTIVE:
        facts.notes.append(f"recompute by {mode} is read as recompute=selective")


LAUNCHER = read_launcher("olmo-core", syntax=read, adjust=adjust)
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
LIMITS = (
    *COMMON,
    decoders_only("OLMo-core"),
    *by_keys(LAUNCHER, besides=("sp", "recompute", "precision", "schedule")),
    only(
        "schedule",
        tuple(WRITTEN_SCHEDULES),
        "its schedules are those of torch.distributed.pipelining",
        schedule=Schedule.ONE_F_ONE_B,
        vpp=1,
    ),
    NO_DIVIDING,
    ONE_STAGE_SPLIT,
    no_zero(1, "FSDP shards gradients, too", 2),
    when(
        lambda s: s.zero == 2 and s.pp == 1,
        "zero=2 without pp: FSDP gathers parameters again in the backward pass (zero=3)",
        zero=3,
    ),
    when(
        lambda s: s.zero == 3 and s.pp > 1,
        "zero=3 with pp > 1: parameters stay gathered under a pipeline (zero=2)",
        zero=2,
    ),
    when(
        lambda s: s.zero == 0 and s.dp > 1 and s.tp * s.pp > 1,
        "zero=0 with tp or pp: plain replicas go with no other degree",
        zero=3,
    ),
    when(lambda s: s.tp > 1 and not s.sp, "tp without sp: norms are cut by sequence", sp=True),
    when(lambda s: s.cp > 1, "cp: its degree is set in code, with the way to exchange keys", cp=1),
    SHARED_BY_WHOLE_REPLICAS,
    precisions(("bf16", "fp32", "fp8"), "it trains in bfloat16, float32 or float8"),
    MODELS,
)


def write(launch: Launch) -> Files:
    """Return the script and its launch scripts."""
    s, workload = launch.strategy, launch.workload
    module = {
        "rank_microbatch_size": f"{s.mbs} * SEQUENCE_LENGTH",
        "max_sequence_length": "SEQUENCE_LENGTH",
        "optim": "AdamWConfig(lr=1e-4, weight_decay=0.1, betas=(0.9, 0.95), fused=True)",
        "compile_model": "True",
        **_parallel(launch),
    }
    text = filled(
        "olmo_core_train.py.txt",
        strategy=s,
        devices=s.devices,
        model=comment(launch.model.name),
        attention="from olmo_core.nn.attention import AttentionBackendName" if launch.packed else "",
        length=workload.seq_len,
        global_batch=workload.global_batch,
        sizes=_lines(_sizes(launch)),
        module=_lines(module),
        documents="        generate_doc_lengths=True," if launch.packed else "",
    )
    return {MAIN: text, **scripts(launch, "OLMo-core 3", [*TORCHRUN, MAIN])}


def _lines(arguments: Mapping[str, Any]) -> str:
    return "\n".join(f"        {name}={value}," for name, value in arguments.items())


def _parallel(launch: Launch) -> dict[str, str]:
    """Return the configurations of the degrees, of recompute and of precision, as source."""
    s, precision = launch.strategy, launch.workload.precision
    settings: dict[str, str] = {}
    dtype = "None" if precision == "fp32" else "DType.bfloat16"
    if s.zero and s.copies > 1:
        shard = s.dp * s.cp // s.copies
        settings["dp_config"] = (
            f"TransformerDataParallelConfig(name=DataParallelType.hsdp, param_dtype={dtype}, num_replicas={s.copies}, "
            f"shard_degree={shard})"
        )
    elif s.dp * s.cp > 1 or s.zero:
        kind = "fsdp" if s.zero else "ddp"
        settings["dp_config"] = f"TransformerDataParallelConfig(name=DataParallelType.{kind}, param_dtype={dtype})"
    if precision != "fp32":
        settings["autocast_precision"] = "DType.bfloat16"
    if s.tp > 1:
        settings["tp_config"] = f"TransformerTensorParallelConfig(degree={s.tp})"
    if s.pp > 1:
        schedule = f"PipelineScheduleType.{WRITTEN_SCHEDULES[s.schedule]}"
        splits = _splits(launch)
        settings["pp_config"] = (
            f"TransformerPipelineParallelConfig(degree={s.pp}, schedule={schedule}, split_points={splits})"
        )
    if s.recompute in WRITTEN_MODES:
        budget = ", activation_memory_budget=0.5" if s.recompute == Recompute.SELECTIVE else ""
        mode = f"TransformerActivationCheckpointingMode.{WRITTEN_MODES[s.recompute]}"
        settings["ac_config"] = f"TransformerActivationCheckpointingConfig(mode={mode}{budget})"
    if precision == "fp8":
        settings["float8_config"] = "Float8Config(enabled=True)"
    return settings


def _splits(launch: Launch) -> list[int]:
    """Return the first layer of every stage but the first."""
    stages = launch.strategy.pp * launch.strategy.vpp
    each = launch.model.layer_count // stages
    return [each * stage for stage in range(1, stages)]


def _sizes(launch: Launch) -> dict[str, Any]:
    """Return the arguments of a Llama-like model."""
    model, layer = launch.model, launch.model.layers[-1]
    assert isinstance(layer.mlp, FeedForward)
    return {
        "d_model": model.hidden,
        "vocab_size": model.vocab,
        "n_layers": model.layer_count,
        "n_heads": layer.attention.heads,
        "n_kv_heads": layer.attention.kv_heads,
        "head_dim": layer.attention.head_dim,
        "qk_norm": layer.attention.query_key_norm,
        "use_head_qk_norm": layer.attention.query_key_norm,
        **({"attn_backend": "AttentionBackendName.flash_2"} if launch.packed else {}),
        "feed_forward": f"FeedForwardConfig(hidden_size={layer.mlp.hidden}, bias=False)",
    }


FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write)
