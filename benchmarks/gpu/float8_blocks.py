"""Time compiled Llama blocks with torchao's float8 linear layers, by recipe, on one GPU.

    python benchmarks/gpu/float8_blocks.py OUT

Milliseconds per block are differences of three and one blocks; casts of weights and activations are included.
"""

import itertools
import sys
from pathlib import Path

import torch
from llama import SHAPES, Block, rotation
from timing import Table, attempt, median_ms
from torch.utils.checkpoint import checkpoint
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

CASES = (("8b", 8192), ("70b", 8192), ("405b", 8192), ("70b", 4096), ("8b", 2048))
RECIPES = ("bf16", "tensorwise", "rowwise", "rowwise_with_gw_hp")


def block(shape: tuple[int, ...], recipe: str) -> Block:
    with torch.device("cuda"):
        one = Block(*shape).to(torch.bfloat16)
    if recipe != "bf16":
        convert_to_float8_training(one, config=Float8LinearConfig.from_recipe_name(recipe))
    one.compile()
    return one


def times_ms(shape: tuple[int, ...], recipe: str, count: int, seq: int, *, again: bool) -> tuple[float, float]:
    """Milliseconds of the forward pass and of both passes of ``count`` blocks; ``again``: full recompute."""
    blocks = [block(shape, recipe) for _ in range(count)]
    cos, sin = rotation(seq, shape[0] // shape[2], "cuda")
    x = torch.randn(1, seq, shape[0], device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient, inputs = torch.randn_like(x), [x, *(p for one in blocks for p in one.parameters())]

    def forward() -> torch.Tensor:
        y = x
        for one in blocks:
            y = checkpoint(one, y, cos, sin, use_reentrant=False) if again else one(y, cos, sin)
        return y

    def both() -> None:
        torch.autograd.grad(forward(), inputs, gradient)

    return median_ms(forward, budget_ms=250, most=8), median_ms(both, budget_ms=500, most=8)


def main(out: Path) -> None:
    columns = ("model", "recipe", "checkpointing", "seq", "forward_ms_per_block", "forward_backward_ms_per_block")
    table = Table(out / "float8_blocks.csv", columns)
    for (model, seq), recipe, again in itertools.product(CASES, RECIPES, (False, True)):
        if again and seq != 8192:
            continue

        def measure(model: str = model, seq: int = seq, recipe: str = recipe, again: bool = again) -> None:
            shape = SHAPES[model][1:5]
            one, three = (times_ms(shape, recipe, count, seq, again=again) for count in (1, 3))
            torch.compiler.reset()
            forward, both = ((b - a) / 2 for a, b in zip(one, three, strict=True))
            values = (model, recipe, int(again), seq, forward, both)
            table.row(**dict(zip(columns, values, strict=True)))

        attempt(f"{model} {recipe} {seq}", measure)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
