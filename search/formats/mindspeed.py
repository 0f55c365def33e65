"""MindSpeed-LLM 2.3 on Ascend: Megatron-core's and its own arguments in a launch script, reading and writing.

Sources: ``features_manager`` of Ascend/MindSpeed and of MindSpeed-LLM, ``examples/mcore`` of MindSpeed-LLM.
"""

from forerun.search.formats.contract import Files, Launch, Limit
from forerun.search.formats.facts import format_of
from forerun.search.formats.launchers import LAUNCH, TORCHRUN, Value, array, comment, scripts
from forerun.search.formats.limits import (
    COMMON,
    DEFAULT_PLACEMENT,
    MEGATRON_SCHEDULES,
    SHARED_BY_ALL,
    change,
    is_mixture,
    only,
    precisions,
    when,
)
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.megatron_lm import TRAINING, MegatronVariant, flags
from forerun.search.formats.megatron_read import BATCH_KEYS
from forerun.search.formats.megatron_write import PRECISION, model_arguments, model_remarks, parallel_arguments
from forerun.search.formats.software import exports, flags_of
from forerun.search.formats.writing import settings_of
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Schedule, Split

NAME, VERSION = "mindspeed", "2.3"
PACKED = "--reset-attention-mask"
"""Attention inside documents, which end with special tokens."""
MARK = "ASCEND|NPUS?_PER_NODE|mindspeed|--use-ascend|--reuse-fp32-param|ascend-toolkit"
ULYSSES = "context_parallel_algo={value}: where it exchanges heads (Ulysses), read as cp all the same"


LAUNCHER = MegatronVariant(
    title="MindSpeed",
    marks=[{"in": "script", "has": MARK}],
    name=NAME,
    version=VERSION,
    framework=NAME,
    says={
        "context_parallel_algo": ULYSSES,
        "tp_2d": "2-D tensor parallelism is read as tp",
        "schedules_method": "{value}: two chunks on every rank, the second on the way back; read as 1f1b",
        "swap_optimizer": "optimizer states move to the host and back; read as optimizer-offload",
    },
    extends="moe_tp_extend_ep",
).launcher

SPLITS = (Split.EVEN, Split.LIGHT_LAST, Split.LIGHT_ENDS)
LIMITS = (
    *COMMON,
    decoders_only("MindSpeed-LLM"),
    Limit(
        broken=lambda launch: launch.model.hybrid,
        reason=lambda launch: f"{launch.model.name}: its layers have other mixers than attention",
        fix=None,
    ),
    MEGATRON_SCHEDULES,
    when(
        lambda s: s.split not in SPLITS or s.layers_per_stage is not None,
        "the split: Megatron-core 0.12 has no layouts of stages",
        split=Split.EVEN,
        layers_per_stage=None,
    ),
    Limit(
        broken=lambda launch: (
            launch.strategy.vpp > 1 and bool(launch.model.layer_count % (launch.strategy.pp * launch.strategy.vpp))
        ),
        reason=lambda launch: "virtual stages: they have the same number of layers",
        fix=lambda launch: change(launch, vpp=1, schedule=Schedule.ONE_F_ONE_B),
    ),
    only("zero", (0, 1), "the distributed optimizer shards optimizer states (zero=1) and no more", zero=1),
    DEFAULT_PLACEMENT,
    SHARED_BY_ALL,
    precisions(("bf16", "fp16", "fp32"), "it trains in bfloat16, float16 or float32"),
)


def write(launch: Launch) -> Files:
    """Return a launch script with quoted arguments and a batch file."""
    s, workload = launch.strategy, launch.workload
    switches, variables = exports(flags_of(launch, NAME))
    groups: dict[str, dict[str, Value]] = {
        "MODEL_ARGS": model_arguments(launch) | _kernels(launch.model),
        "PARALLEL_ARGS": _stages(launch),
        "SOFTWARE_ARGS": switches,
        "TRAINING_ARGS": settings_of(BATCH_KEYS, launch)
        | PRECISION[workload.precision]
        | {"train_iters": launch.job.steps}
        | TRAINING,
    }
    lines = [f"# {comment(remark)}" for remark in _remarks(launch)]
    lines += [
        'CANN="${ASCEND_TOOLKIT_HOME:-/usr/local/Ascend/ascend-toolkit}/set_env.sh"',
        'if [ -f "$CANN" ]; then set +u; source "$CANN"; set -u; fi',
        *variables,
    ]
    if s.tp > 1 or s.cp > 1:
        lines += [
            "# Megatron-core's check of arguments asks for it, on NPUs as well.",
            "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        ]
    lines += [""]
    for name, arguments in groups.items():
        lines += [*array(name, flags(arguments)), ""]
    lines += [
        "DATA_ARGS=(",
        '    --data-path "${DATA_PATH:-data/text_document}"',
        '    --tokenizer-type PretrainedFromHF --tokenizer-name-or-path "${TOKENIZER_PATH:-tokenizer}"',
        f"    --vocab-size {launch.model.vocab} --split 100,0,0",
        *([f"    --reset-position-ids {PACKED}"] if launch.packed else []),
        ")",
    ]
    arrays = [f'"${{{name}[@]}}"' for name in (*groups, "DATA_ARGS")]
    command = [*TORCHRUN, '"${MINDSPEED_PATH:-.}/pretrain_gpt.py"', " ".join(arrays)]
    return scripts(launch, f"MindSpeed-LLM {VERSION}", command, before=lines)


def _kernels(model: Model) -> dict[str, Value]:
    """Return the arguments of fused operators that the profile assumes."""
    layer = model.layers[-1]
    return {
        "use_mcore_models": True,
        "use_fused_rmsnorm": not layer.norm_bias,
        "use_fused_swiglu": bool(layer.mlp and layer.mlp.gated),
        "use_fused_rotary_pos_emb": not model.learned_positions,
    }


def _stages(launch: Launch) -> dict[str, Value]:
    """Return the arguments of the strategy; virtual stages are given by their layers."""
    s, arguments = launch.strategy, parallel_arguments(launch)
    if arguments.pop("num_virtual_stages_per_pipeline_rank", None):
        arguments["num_layers_per_virtual_pipeline_stage"] = launch.model.layer_count // (s.pp * s.vpp)
    return {name: value for name, value in arguments.items() if name != "use_tp_pp_dp_mapping"}


def _remarks(launch: Launch) -> list[str]:
    """List the parts of a model missing in its arguments, one sentence each."""
    model = launch.model
    remarks = [text.replace("Megatron-LM", "MindSpeed-LLM") for text in model_remarks(launch)]
    if is_mixture(model) or any(layer.mixer and layer.attention.latent for layer in model.layers):
        remarks.append("set --spec to the specification of this model (mindspeed_llm/tasks/models/spec)")
    return remarks


FORMAT = format_of(LAUNCHER, main=LAUNCH, limits=LIMITS, write=write, packs=PACKED)
