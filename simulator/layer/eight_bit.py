"""Products in 8 bit and less: scaling recipes, and the stored and sent forms of weights.

A recipe determines which values share a scale: the whole tensor (``delayed``: by its largest value in earlier steps;
``current``: in this one), tiles of 128 values, for weights 128 x 128 (``block``: arXiv 2412.19437, section 3.3), 32
values (``mx``: MXFP8), or a row and, for the weight gradient, a column (``row``: torchao's float8 training).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.simulator.costs import INPUT_BYTES, stream_operator
from forerun.spaces.strategies import Context

EIGHT_BIT = ("fp8", "mxfp8", "fp4", "nvfp4")
FOUR_BIT = ("fp4", "nvfp4")
"""Precisions with matrix products of 4-bit inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One recipe."""

    cast: str
    """Memory-bound operator that casts the inputs of products."""
    weight_bytes: float
    """Bytes of a weight in one layout, with its scales."""
    one_scale: bool = False
    """Whether scales are equal along rows and columns. One copy serves every product on devices whose tensor cores read
    either layout."""
    gathers_weights: bool = True
    """Whether weights stored only in 8 bit are gathered in 8 bit; otherwise in half precision. Blocks of 32 cross the
    borders of slices, and are scaled again (Megatron-core's ``reuse_grad_buf_for_mxfp8_param_ag``)."""


RECIPES: Mapping[str, Recipe] = {
    "delayed": Recipe(cast="cast", weight_bytes=INPUT_BYTES["fp8"], one_scale=True),
    "current": Recipe(cast="cast_scaled", weight_bytes=INPUT_BYTES["fp8"], one_scale=True),
    # Scales in fp32. Partial sums of 128 products are scaled and accumulated by other warps than those that multiply.
    "block": Recipe(cast="cast_blocks", weight_bytes=1 + 4 / 128**2),
    "mx": Recipe(cast="cast", weight_bytes=INPUT_BYTES["mxfp8"], gathers_weights=False),
    "row": Recipe(cast="cast_rows", weight_bytes=INPUT_BYTES["fp8"]),
}
_FOUR_BIT = Recipe(cast="cast_scaled", weight_bytes=INPUT_BYTES["nvfp4"])


def recipe_of(context: Context) -> Recipe | None:
    """Return the recipe of a training; None where its products are in more than 8 bit."""
    precision = context.workload.precision
    if precision not in EIGHT_BIT:
        return None
    if precision in FOUR_BIT:
        return _FOUR_BIT
    return RECIPES["mx" if precision == "mxfp8" else context.framework.eight_bit_recipe]


def gathered_share(context: Context) -> float:
    """Return the bytes of an activation gathered over tensor ranks relative to half precision.

    Inputs of products may be sent in 8 bit where one scale covers the tensor, partial sums never.
    """
    recipe = recipe_of(context)
    if recipe is None or not (context.framework.eight_bit_gathers and recipe.one_scale):
        return 1.0
    return recipe.weight_bytes / 2.0


def weight_layouts(context: Context, recipe: Recipe) -> int:
    """Return the number of layouts in which a weight is stored for the products of both passes.

    Tensor cores of Blackwell read either layout (Transformer Engine, ``is_non_tn_fp8_gemm_supported``).
    """
    either = context.cluster.device.architecture.startswith("Blackwell")
    return 1 if recipe.one_scale and either else 2


def keeps_eight_bit(context: Context) -> bool:
    """Check whether 8-bit weights persist over microbatches (as copies or alone); otherwise every microbatch casts."""
    profile = context.framework
    return profile.eight_bit_copies or (profile.eight_bit_parameters and context.workload.precision not in FOUR_BIT)


def renewed_bytes(context: Context) -> float:
    """Return the memory traffic per weight of renewing stored 8-bit forms once per step.

    The forms are cast from half precision, or are the second layout of a weight gathered in 8 bit.
    """
    recipe = recipe_of(context)
    if recipe is None or not keeps_eight_bit(context):
        return 0.0
    layouts = weight_layouts(context, recipe)
    if context.framework.eight_bit_parameters and recipe.gathers_weights:
        return 2 * (layouts - 1) * recipe.weight_bytes
    moved = stream_operator(recipe.cast).forward.bytes_per_element
    return moved - (2 - layouts) * recipe.weight_bytes
