"""Limits of launchers whose keys have words for part of a strategy only."""

from forerun.search.formats.contract import Launch, Limit
from forerun.search.formats.limits import (
    COMMON,
    DEFAULT_PLACEMENT,
    NO_SELECTIVE,
    SHARED_BY_ALL,
    SHARED_BY_WHOLE_REPLICAS,
    change,
    fixed,
    no_experts,
    only,
    precisions,
    without,
)
from forerun.search.formats.limits_of_models import decoders_only
from forerun.spaces.strategies import Schedule, Split
from forerun.spaces.strategies.axes import schedules_in

ONE_STAGE_SPLIT = fixed(
    lambda launch: launch.strategy.split != Split.EVEN or launch.strategy.layers_per_stage is not None,
    "the split: its stages have the same number of layers",
    split=Split.EVEN,
    layers_per_stage=None,
)
NO_DIVIDING = Limit(
    broken=lambda launch: (
        launch.strategy.pp > 1 and launch.model.layer_count % (launch.strategy.pp * launch.strategy.vpp) != 0
    ),
    reason=lambda launch: f"{launch.model.layer_count} layers are not divisible by pp*vpp",
    fix=lambda launch: change(launch, pp=1, dp=launch.strategy.dp * launch.strategy.pp, vpp=1),
)
NO_ETP = fixed(lambda launch: launch.strategy.etp > 1, "etp > 1: it does not split an expert", etp=1)
NO_SP = fixed(lambda launch: launch.strategy.sp, "sp: norms and residuals are whole on every rank", sp=False)


def no_zero(stage: int, reason: str, instead: int) -> Limit:
    """Return the limit "``stage`` is not among the ways to shard"."""
    return fixed(lambda launch: launch.strategy.zero == stage, f"zero={stage}: {reason}", zero=instead)


def _pipelined_zero(launch: Launch) -> bool:
    return launch.strategy.pp > 1 and launch.strategy.zero > 1


NEOX = (
    *COMMON,
    decoders_only("GPT-NeoX"),
    without("cp", "the configuration has no such degree in its released versions"),
    only("schedule", (Schedule.ONE_F_ONE_B,), "DeepSpeed's pipeline runs 1F1B", schedule=Schedule.ONE_F_ONE_B, vpp=1),
    NO_DIVIDING,
    ONE_STAGE_SPLIT,
    fixed(_pipelined_zero, "zero > 1 with pp > 1: DeepSpeed's pipeline keeps gradients whole", zero=1),
    NO_SELECTIVE,
    NO_ETP,
    DEFAULT_PLACEMENT,
    SHARED_BY_ALL,
    precisions(("bf16", "fp16", "fp32"), "the configuration has bfloat16, float16 and float32"),
)
TRAINER = (
    *COMMON,
    without("pp", "transformers' Trainer has no pipeline"),
    NO_SP,
    no_experts("transformers' Trainer has no expert parallelism"),
    NO_SELECTIVE,
    precisions(("bf16", "fp16", "fp32"), "it trains in bfloat16, float16 or float32"),
)
LLAMA_FACTORY = (
    *TRAINER,
    decoders_only("LLaMA-Factory", hybrids=True),
    without("tp", "its Trainer form has no tensor parallelism"),
    without("cp", "its Trainer form has no context parallelism"),
    SHARED_BY_ALL,
)
AXOLOTL = (
    *TRAINER,
    decoders_only("axolotl", hybrids=True),
    no_zero(1, "with FSDP gradients are sharded, too (zero=2); zero=1 is written for DeepSpeed, in LLaMA-Factory", 2),
    fixed(
        lambda launch: (
            launch.strategy.zero == 0
            and launch.strategy.dp * launch.strategy.cp > 1
            and launch.strategy.tp * launch.strategy.cp > 1
        ),
        "zero=0 with tp or cp: its device mesh shards the replicas of such a model",
        zero=2,
    ),
    Limit(
        broken=lambda launch: launch.strategy.dp * launch.strategy.cp == 1 and launch.strategy.tp > 1,
        reason=lambda launch: "tp alone: FSDP needs replicas or context ranks to shard over",
        fix=lambda launch: change(launch, tp=1, dp=launch.strategy.tp, zero=2),
    ),
    fixed(
        lambda launch: launch.strategy.cp > 1 and launch.strategy.mbs > 1,
        "mbs > 1 with cp: its ring attention takes one packed sequence at a time",
        mbs=1,
    ),
    SHARED_BY_WHOLE_REPLICAS,
)
OLMO_CORE = (
    *COMMON,
    decoders_only("OLMo-core"),
    only(
        "schedule",
        tuple(schedules_in("olmo-core")),
        "its schedules are those of torch.distributed.pipelining",
        schedule=Schedule.ONE_F_ONE_B,
        vpp=1,
    ),
    NO_DIVIDING,
    ONE_STAGE_SPLIT,
    no_zero(1, "FSDP shards gradients, too", 2),
    fixed(
        lambda launch: launch.strategy.zero == 2 and launch.strategy.pp == 1,
        "zero=2 without pp: FSDP gathers parameters again in the backward pass (zero=3)",
        zero=3,
    ),
    fixed(
        lambda launch: launch.strategy.zero == 3 and launch.strategy.pp > 1,
        "zero=3 with pp > 1: parameters stay gathered under a pipeline (zero=2)",
        zero=2,
    ),
    fixed(
        lambda launch: (
            launch.strategy.zero == 0 and launch.strategy.dp > 1 and launch.strategy.tp * launch.strategy.pp > 1
        ),
        "zero=0 with tp or pp: plain replicas go with no other degree",
        zero=3,
    ),
    fixed(
        lambda launch: launch.strategy.tp > 1 and not launch.strategy.sp,
        "tp without sp: norms are cut by sequence",
        sp=True,
    ),
    no_experts("dispatchers of experts are chosen with the model in code"),
    fixed(lambda launch: launch.strategy.cp > 1, "cp: its degree is set in code, with the way to exchange keys", cp=1),
    DEFAULT_PLACEMENT,
    SHARED_BY_WHOLE_REPLICAS,
    precisions(("bf16", "fp32", "fp8"), "it trains in bfloat16, float32 or float8"),
)
