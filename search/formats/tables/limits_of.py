"""Limits of launchers whose keys express only part of a strategy."""

from forerun.search.formats.contract import Limit
from forerun.search.formats.limits import folded, when
from forerun.spaces.strategies import Split

ONE_STAGE_SPLIT = when(
    lambda s: s.split != Split.EVEN or s.layers_per_stage is not None,
    "the split: its stages have the same number of layers",
    split=Split.EVEN,
    layers_per_stage=None,
)
NO_DIVIDING = Limit(
    broken=lambda launch: (
        launch.strategy.pp > 1 and launch.model.layer_count % (launch.strategy.pp * launch.strategy.vpp) != 0
    ),
    reason=lambda launch: f"{launch.model.layer_count} layers are not divisible by pp*vpp",
    fix=lambda launch: folded(launch, "pp"),
)


def no_zero(stage: int, reason: str, instead: int) -> Limit:
    """Return the limit "no ZeRO ``stage``"."""
    return when(lambda s: s.zero == stage, f"zero={stage}: {reason}", zero=instead)


TRAINER = {
    "pp": "transformers' Trainer has no pipeline",
    "sp": "norms and residuals are whole on every rank",
    "ep": "transformers' Trainer has no expert parallelism",
    "recompute": "it recomputes whole layers or nothing",
}
"""Reasons why transformers' Trainer lacks keys for some decisions."""
