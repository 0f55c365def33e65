"""Limits of launchers whose keys have words for part of a strategy only."""

from forerun.search.formats.contract import Limit
from forerun.search.formats.limits import (
    COMMON,
    NO_SELECTIVE,
    change,
    fixed,
    no_experts,
    precisions,
    without,
)
from forerun.spaces.strategies import Split

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


TRAINER = (
    *COMMON,
    without("pp", "transformers' Trainer has no pipeline"),
    NO_SP,
    no_experts("transformers' Trainer has no expert parallelism"),
    NO_SELECTIVE,
    precisions(("bf16", "fp16", "fp32"), "it trains in bfloat16, float16 or float32"),
)
