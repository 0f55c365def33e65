"""Hugging Face accelerate 1.15: a YAML file for FSDP 2, and one for its Megatron-LM plugin.

Source: ``accelerate/commands/config/config_args.py``, ``parallelism_config.py`` and ``MegatronLMPlugin`` in
``utils/dataclasses.py``. Micro-batch and accumulation are arguments of the user's program, so they stand in the script.
"""

from typing import Any

from forerun.search.formats.contract import Files, Format, Imported, Launch, Limit, Source
from forerun.search.formats.devices import Replicas, World, replicas
from forerun.search.formats.layers import counts_of, split_of
from forerun.search.formats.limits import (
    COMMON,
    DEFAULT_PLACEMENT,
    NO_SELECTIVE,
    change,
    fixed,
    no_experts,
    only,
    precisions,
    splits_by_rule,
    without,
)
from forerun.search.formats.program_arguments import launch_files, program_settings, trainer_arguments
from forerun.search.formats.settings import Settings, flatten
from forerun.search.formats.shell_script import world_of
from forerun.search.formats.yaml_text import dump_yaml
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute, Schedule, Split, Strategy

FSDP, MEGATRON, VERSION = "accelerate-fsdp", "accelerate-megatron", "1.15"
FSDP_MAIN, MEGATRON_MAIN = "accelerate-fsdp.yaml", "accelerate-megatron.yaml"

MIXED = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}
HARMLESS = (
    "compute_environment debug downcast_bf16 enable_cpu_affinity machine_rank main_training_function num_machines "
    "rdzv_backend same_network tpu_env tpu_use_cluster tpu_use_sudo tpu_name tpu_zone command_file commands tpu_vm "
    "use_cpu gpu_ids main_process_ip main_process_port mpirun_config dynamo_config dynamo_backend fp8_config"
).split()
HARMLESS_FSDP = (
    "auto_wrap_policy transformer_layer_cls_to_wrap state_dict_type cpu_ram_efficient_loading backward_prefetch "
    "forward_prefetch use_orig_params sync_module_states min_num_params offload_params version "
    "backward_prefetch_policy ignored_modules activation_checkpointing_offload"
).split()
HARMLESS_MEGATRON = (
    "gradient_clipping attention_backend attention_dropout hidden_dropout attention_softmax_in_fp32 recompute_method "
    "calculate_per_token_loss use_rotary_position_embeddings use_custom_fsdp no_load_optim eod_mask_loss no_save_optim "
    "optimizer_cpu_offload overlap_cpu_optimizer_d2h_h2d use_precision_aware_optimizer recompute_num_layers"
).split()

FSDP_LIMITS = (
    *COMMON,
    without("pp", "accelerate's ParallelismConfig has no pipeline"),
    fixed(lambda launch: launch.strategy.sp, "sp: transformers' tensor parallel plans keep norms whole", sp=False),
    no_experts("accelerate's ParallelismConfig has no expert parallelism"),
    NO_SELECTIVE,
    fixed(lambda launch: launch.strategy.zero == 1, "zero=1: FSDP shards gradients as well (zero=2)", zero=2),
    Limit(
        broken=lambda launch: launch.strategy.dp * launch.strategy.cp == 1 and launch.strategy.tp > 1,
        reason=lambda launch: "tp alone: FSDP needs replicas or context ranks to shard over",
        fix=lambda launch: change(launch, tp=1, dp=launch.strategy.tp, zero=2),
    ),
    fixed(
        lambda launch: launch.strategy.zero == 0 and launch.strategy.tp * launch.strategy.cp > 1,
        "zero=0 with tp or cp: ParallelismConfig shards the replicas of such a model",
        zero=2,
    ),
    precisions(tuple(MIXED), "it has bf16, fp16 and no mixed precision here"),
)
MEGATRON_LIMITS = (
    *COMMON,
    only(
        "schedule",
        (Schedule.ONE_F_ONE_B,),
        "the plugin's file has no virtual stages",
        schedule=Schedule.ONE_F_ONE_B,
        vpp=1,
    ),
    splits_by_rule("Megatron-LM"),
    Limit(
        broken=lambda launch: not _last_differs(launch),
        reason=lambda launch: "the split: only the last stage can have a number of layers of its own",
        fix=lambda launch: (
            change(launch, split=Split.LIGHT_LAST, layers_per_stage=None)
            if (launch.model.layer_count + 1) % launch.strategy.pp == 0
            else change(launch, pp=1, dp=launch.strategy.dp * launch.strategy.pp, layers_per_stage=None)
        ),
    ),
    DEFAULT_PLACEMENT,
    only("zero", (0, 1), "the distributed optimizer shards optimizer states (zero=1) and no more", zero=1),
    only(
        "recompute",
        (Recompute.FULL,),
        "accelerate 1.15 hands recompute_granularity=full to Megatron-LM unless told otherwise, and with selective a "
        "recompute_method that contradicts it",
    ),
    precisions(("bf16", "fp16"), "the plugin runs Megatron-LM in bf16 or fp16"),
)


def _last_differs(launch: Launch) -> bool:
    """Whether all stages but the last have the same number of layers."""
    s = launch.strategy
    if s.split not in (Split.EVEN, Split.BALANCED, Split.LIGHT_LAST, Split.LIGHT_ENDS):
        return True  # another limit's matter
    return s.pp == 1 or len(set(counts_of(s, launch.model.layer_count)[:-1])) == 1


def _common(launch: Launch, kind: str) -> dict[str, Any]:
    return {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": kind,
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": MIXED[launch.workload.precision],
        "num_machines": launch.nodes,
        "num_processes": launch.strategy.devices,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }


def write_fsdp(launch: Launch) -> Files:
    """Return the YAML of FSDP 2 (of plain replicas where nothing is sharded) and a launch script."""
    s = launch.strategy
    data = _common(launch, "FSDP" if s.zero else "MULTI_GPU" if s.devices > 1 else "NO")
    if s.zero:
        data["fsdp_config"] = {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": s.zero == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_activation_checkpointing": s.recompute == Recompute.FULL,
            "fsdp_cpu_ram_efficient_loading": False,
            "fsdp_offload_params": False,
            "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        }
        data["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": 1,
            "parallelism_config_dp_shard_size": s.dp,
            "parallelism_config_tp_size": s.tp,
            "parallelism_config_cp_size": s.cp,
        }
    arguments = trainer_arguments(launch)
    if s.recompute == Recompute.FULL and not s.zero:
        arguments.append("--gradient_checkpointing true")
    return _files(launch, FSDP_MAIN, data, arguments)


def write_megatron(launch: Launch) -> Files:
    """Return the YAML of the Megatron-LM plugin and a launch script."""
    s = launch.strategy
    prefix = "megatron_lm_"
    plugin: dict[str, Any] = {
        "tp_degree": s.tp,
        "pp_degree": s.pp,
        "num_micro_batches": launch.microbatches,
        "sequence_parallelism": s.sp,
        "context_parallel_size": s.cp,
        "expert_model_parallel_size": s.ep,
        "expert_tensor_parallel_size": s.etp,
        "use_distributed_optimizer": s.zero == 1,
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
        "gradient_clipping": 1.0,
    }
    if s.pp > 1 and len(set(counts := counts_of(s, launch.model.layer_count))) > 1:
        plugin["decoder_last_pipeline_num_layers"] = counts[-1]
        plugin["num_layers"] = launch.model.layer_count
    remark = {"num_layers": plugin.pop("num_layers")} if "num_layers" in plugin else {}
    data = _common(launch, "MEGATRON_LM")
    data["megatron_lm_config"] = {prefix + key: value for key, value in plugin.items()}
    arguments = [f"--num_layers {value}" for value in remark.values()]
    arguments = [argument for argument in trainer_arguments(launch) if "accumulation" not in argument] + arguments
    return _files(launch, MEGATRON_MAIN, data, arguments)


def _files(launch: Launch, main: str, data: dict[str, Any], arguments: list[str]) -> Files:
    starter = [
        f'accelerate launch --config_file {main} --num_machines "$NNODES" --machine_rank "$NODE_RANK"',
        '--main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT"',
    ]
    text = dump_yaml(data, f"{launch.name}: accelerate {VERSION}, {launch.strategy}")
    return {main: text, **launch_files(launch, f"accelerate {VERSION}", starter, arguments)}


def parse_fsdp(source: Source) -> Imported:
    """Read a file for FSDP (version 1 or 2), plain replicas, or DeepSpeed through accelerate."""
    settings = Settings(flatten(source.top_level()), source.name)
    program = program_settings(source.beside)
    notes: list[str] = []
    defaults: list[str] = []
    kind = (settings.text("distributed_type") or "NO").upper()
    if kind not in ("FSDP", "MULTI_GPU", "NO", "DEEPSPEED"):
        raise RequestError(
            f"{source.name}: distributed_type {kind} is none of FSDP, MULTI_GPU, NO, DEEPSPEED; "
            f"Megatron-LM's files are format {MEGATRON}"
        )
    key = "parallelism_config.parallelism_config_{}".format
    tp = settings.whole(key("tp_size")) or 1
    cp = settings.whole(key("cp_size")) or 1
    ulysses = settings.whole(key("sp_size")) or 1
    if ulysses > 1:
        notes.append(f"sp_size={ulysses} (Ulysses) exchanges heads; read as cp={ulysses}")
    cp *= ulysses
    shard, replicate = settings.whole(key("dp_shard_size")), settings.whole(key("dp_replicate_size"))
    world = _world(settings, source)
    found = replicas(world, tp * cp, what=f"tp*cp = {tp}*{cp}", source=source.name)
    if shard is not None or replicate is not None:
        dp = (shard or 1) * (replicate or 1)
        if found.known and dp != found.dp:
            raise RequestError(f"{source.name}: {found.dp * tp * cp} processes are not dp*tp*cp = {dp}*{tp}*{cp}")
        found = Replicas(dp=dp, known=True)
    if shard and replicate and shard > 1 and replicate > 1:
        notes.append(f"replicas are sharded in groups (HSDP, {replicate} copies); read as sharded over all of them")
    zero = _fsdp_zero(settings, kind, notes)
    if zero and found.known and found.dp * cp == 1:
        zero = 0
    full = settings.flag("fsdp_config.fsdp_activation_checkpointing") or program.flag("gradient_checkpointing")
    mbs, batch = _batch(settings, program, found, defaults)
    strategy = Strategy(
        dp=found.dp,
        tp=tp,
        cp=cp,
        mbs=mbs,
        zero=zero,
        recompute=Recompute.FULL if full else Recompute.NONE,
    )
    return _imported(FSDP, settings, program, strategy, found, batch, defaults, notes)


def _world(settings: Settings, source: Source) -> World:
    """The file's own number of processes; the user's, then the scripts', come first."""
    world = world_of(source.beside, source.gpus)
    processes = settings.whole("num_processes", least=-1)
    if source.gpus is not None or processes is None or processes < 1:
        return world
    return World(devices=processes)


def _fsdp_zero(settings: Settings, kind: str, notes: list[str]) -> int:
    """Return what FSDP shards: version 2 by ``reshard_after_forward``, version 1 by a named strategy."""
    reshard = settings.raw("fsdp_config.fsdp_reshard_after_forward")
    sharding = settings.text("fsdp_config.fsdp_sharding_strategy")
    settings.raw("fsdp_config.fsdp_version")
    if settings.flag("fsdp_config.fsdp_offload_params"):
        notes.append("offload of parameters is not part of a strategy")
    if kind == "DEEPSPEED":
        return settings.whole("deepspeed_config.zero_stage", least=0) or 0
    if kind != "FSDP":
        return 0
    name = str(sharding if isinstance(reshard, bool) or reshard is None else reshard).upper()
    stages = {"FULL_SHARD": 3, "1": 3, "SHARD_GRAD_OP": 2, "2": 2, "NO_SHARD": 0, "3": 0, "HYBRID_SHARD": 3, "4": 3}
    stages |= {"HYBRID_SHARD_ZERO2": 2, "5": 2}
    if name in stages:
        if "HYBRID" in name:
            notes.append("replicas are sharded within nodes (hybrid); read as sharded over all of them")
        return stages[name]
    return 2 if reshard is False else 3


def parse_megatron(source: Source) -> Imported:
    """Read a file for the Megatron-LM plugin."""
    settings = Settings(flatten(source.top_level()), source.name)
    program = program_settings(source.beside)
    notes: list[str] = []
    defaults: list[str] = []
    settings.text("distributed_type")
    key = "megatron_lm_config.megatron_lm_{}".format
    tp, pp = settings.whole(key("tp_degree")) or 1, settings.whole(key("pp_degree")) or 1
    cp = settings.whole(key("context_parallel_size"))
    if cp is None:
        cp = 1
        defaults.append("cp=1: the file has no megatron_lm_context_parallel_size (accelerate 1.15 then assumes 2)")
    found = replicas(_world(settings, source), tp * pp * cp, what=f"tp*pp*cp = {tp}*{pp}*{cp}", source=source.name)
    micro = settings.whole(key("num_micro_batches")) or 1
    mbs = program.whole("per_device_train_batch_size", "micro_batch_size")
    if mbs is None:
        mbs = 1
        defaults.append("mbs=1: the program's --per_device_train_batch_size is not known")
    sharded = bool(settings.flag(key("use_distributed_optimizer")))
    strategy = Strategy(
        dp=found.dp,
        tp=tp,
        pp=pp,
        cp=cp,
        ep=settings.whole(key("expert_model_parallel_size")) or 1,
        etp=settings.whole(key("expert_tensor_parallel_size")) or 1,
        mbs=mbs,
        zero=int(sharded and not (found.known and found.dp * cp == 1)),
        sp=bool(settings.flag(key("sequence_parallelism"))) and tp > 1,
        recompute=_plugin_recompute(settings, notes),
        **_plugin_stages(settings, program, pp, source.name),
    )
    return _imported(MEGATRON, settings, program, strategy, found, mbs * micro * found.dp, defaults, notes)


def _plugin_recompute(settings: Settings, notes: list[str]) -> Recompute:
    key = "megatron_lm_config.megatron_lm_{}".format
    granularity = settings.one_of(key("recompute_granularity"), ("full", "selective"))
    activations = settings.flag(key("recompute_activations"))
    if granularity == "full":
        return Recompute.FULL
    if granularity is None:
        notes.append("recompute_granularity is not set; accelerate 1.15 then recomputes whole layers")
    return Recompute.SELECTIVE if granularity == "selective" or activations else Recompute.NONE


def _plugin_stages(settings: Settings, program: Settings, pp: int, source: str) -> dict[str, Any]:
    last = settings.whole("megatron_lm_config.megatron_lm_decoder_last_pipeline_num_layers")
    layers = program.whole("num_layers")
    if last is None or pp == 1:
        return {}
    if layers is None or layers <= last or (layers - last) % (pp - 1):
        raise RequestError(
            f"{source}: the last stage has {last} layers, but all layers (--num_layers of the program) are {layers}"
        )
    named = split_of((*[(layers - last) // (pp - 1)] * (pp - 1), last), pp=pp, vpp=1)
    assert named is not None  # without virtual stages every split has a name
    return {"split": named[0], "layers_per_stage": named[1]}


def _batch(settings: Settings, program: Settings, found: Replicas, defaults: list[str]) -> tuple[int, int]:
    mbs = program.whole("per_device_train_batch_size", "micro_batch_size")
    steps = program.whole("gradient_accumulation_steps")
    steps = steps or settings.whole("deepspeed_config.gradient_accumulation_steps", "gradient_accumulation_steps")
    if mbs is None:
        mbs = 1
        defaults.append("mbs=1: the program's --per_device_train_batch_size is not known")
    if steps is None:
        steps = 1
        defaults.append("1 microbatch per step: the program's --gradient_accumulation_steps is not known")
    return mbs, mbs * steps * found.dp


def _imported(
    name: str,
    settings: Settings,
    program: Settings,
    strategy: Strategy,
    found: Replicas,
    batch: int,
    defaults: list[str],
    notes: list[str],
) -> Imported:
    mixed = settings.text("mixed_precision")
    workload: dict[str, Any] = {"global_batch": batch} if found.known else {}
    workload["precision"] = {"no": "fp32", None: "fp32", "None": "fp32"}.get(mixed, mixed)
    if (length := program.whole("max_seq_length", "max_length")) is not None:
        workload["seq_len"] = length
    if found.known:
        workload["gpus"] = strategy.devices
    other, unknown = settings.rest(_known)
    return Imported(
        format=name,
        version=VERSION,
        strategy=strategy,
        workload=workload,
        model={},
        other=other,
        unknown=unknown,
        defaults=(*found.defaults, *defaults),
        notes=(*found.notes, *notes),
    )


def _known(key: str) -> bool:
    section, _, name = key.partition(".")
    if section == "fsdp_config":
        return name.removeprefix("fsdp_") in HARMLESS_FSDP
    if section == "megatron_lm_config":
        return name.removeprefix("megatron_lm_") in HARMLESS_MEGATRON
    if section == "parallelism_config":
        return name.removeprefix("parallelism_config_").startswith(("cp_", "sp_"))
    return section in HARMLESS or section == "deepspeed_config"


def recognise_fsdp(source: Source) -> bool:
    """Whether a YAML file has accelerate's ``distributed_type`` and is not for Megatron-LM."""
    return source.suffix in (".yaml", ".yml") and "distributed_type" in source.text and "MEGATRON_LM" not in source.text


def recognise_megatron(source: Source) -> bool:
    """Whether a YAML file has accelerate's ``distributed_type: MEGATRON_LM``."""
    return source.suffix in (".yaml", ".yml") and "distributed_type" in source.text and "MEGATRON_LM" in source.text


FSDP_FORMAT = Format(
    name=FSDP,
    version=VERSION,
    title="accelerate with FSDP 2",
    main=FSDP_MAIN,
    limits=FSDP_LIMITS,
    write=write_fsdp,
    parse=parse_fsdp,
    recognise=recognise_fsdp,
)
MEGATRON_FORMAT = Format(
    name=MEGATRON,
    version=VERSION,
    title="accelerate with Megatron-LM",
    main=MEGATRON_MAIN,
    limits=MEGATRON_LIMITS,
    write=write_megatron,
    parse=parse_megatron,
    recognise=recognise_megatron,
    framework="megatron-lm",
)
