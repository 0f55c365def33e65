"""Time Llama layers under JAX and XLA by rematerialisation policy, on one GPU.

    python benchmarks/gpu/xla_layers.py OUT

Per layer: the difference of six and two layers, in bf16 with cuDNN's attention and a scan over layers. Temporaries are
XLA's own count of the compiled step. ``minimal`` saves the outputs of all products, ``full`` nothing.
"""

import csv
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

SAVE = jax.checkpoint_policies.save_only_these_names
POLICIES = {
    "none": None,
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims,
    "save_qkv_out": SAVE("q", "k", "v", "out", "attention"),
    "save_attention_out": SAVE("out"),
    "minimal": SAVE("q", "k", "v", "attention", "out", "gate", "up", "down"),
}
CASES = (
    ("8b", (4096, 14336, 32, 8), 1, 8192),
    ("8b", (4096, 14336, 32, 8), 4, 2048),
    ("70b", (8192, 28672, 64, 8), 1, 4096),
)
"""Model, (width, width of the feed-forward, heads, heads of keys), sequences, sequence length."""


def norm(x: jax.Array, weight: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-5)).astype(x.dtype) * weight


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    first, second = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate((first * cos - second * sin, second * cos + first * sin), -1).astype(x.dtype)


def layer(x: jax.Array, w: dict[str, jax.Array], cos: jax.Array, sin: jax.Array, heads: int) -> jax.Array:
    batch, seq, width = x.shape
    y = norm(x, w["norm1"])
    q, k, v = (checkpoint_name((y @ w[name]).reshape(batch, seq, -1, width // heads), name) for name in "qkv")
    scores = jax.nn.dot_product_attention(
        rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, implementation="cudnn"
    )
    scores = checkpoint_name(scores, "attention")
    x = x + checkpoint_name(scores.reshape(batch, seq, width) @ w["out"], "out")
    y = norm(x, w["norm2"])
    gate, up = (checkpoint_name(y @ w[name], name) for name in ("gate", "up"))
    return x + checkpoint_name((jax.nn.silu(gate) * up) @ w["down"], "down")


def fastest_ms(call: Callable[..., Any], *arguments: Any) -> float:
    jax.block_until_ready(call(*arguments))
    readings = []
    for _ in range(4):
        start = time.perf_counter()
        jax.block_until_ready(call(*arguments))
        readings.append(time.perf_counter() - start)
    return min(readings) * 1e3


def step_of(layers: int, shape: tuple[int, int, int, int], mbs: int, seq: int, policy: str) -> tuple[float, ...]:
    """Milliseconds of the forward pass and of both passes, GiB of temporaries."""
    width, inner, heads, kv_heads = shape
    keys = kv_heads * width // heads
    sizes = {"q": (width, width), "k": (width, keys), "v": (width, keys), "out": (width, width)}
    sizes |= {
        "gate": (width, inner),
        "up": (width, inner),
        "down": (inner, width),
        "norm1": (width,),
        "norm2": (width,),
    }
    draw = jax.random.PRNGKey(0)
    w = {name: jax.random.normal(draw, (layers, *size), jnp.bfloat16) * 0.02 for name, size in sizes.items()}
    x = jax.random.normal(draw, (mbs, seq, width), jnp.bfloat16)
    half = width // heads // 2
    angles = jnp.arange(seq)[:, None] * (10000.0 ** (-jnp.arange(half) / half))[None]
    cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]

    def body(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        return layer(x, w, cos, sin, heads), None

    wrapped = body if policy == "none" else jax.checkpoint(body, policy=POLICIES[policy], prevent_cse=False)

    def loss(w: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.mean(jax.lax.scan(wrapped, x, w)[0].astype(jnp.float32) ** 2)

    forward = jax.jit(loss).lower(w, x).compile()
    both = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(w, x).compile()
    temporaries = both.memory_analysis().temp_size_in_bytes / 2**30
    return fastest_ms(forward, w, x), fastest_ms(both, w, x), temporaries


def main(out: Path) -> None:
    measured = ("forward_ms_per_layer", "forward_backward_ms_per_layer", "temporaries_gib_per_layer")
    with (out / "xla_layers.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("model", "policy", "mbs", "seq", "layers", *measured))
        for model, shape, mbs, seq in CASES:
            for policy in POLICIES:
                two, six = (step_of(layers, shape, mbs, seq, policy) for layers in (2, 6))
                per_layer = (f"{(b - a) / 4:.5g}" for a, b in zip(two, six, strict=True))
                table.writerow((model, policy, mbs, seq, 6, *per_layer))
                file.flush()


if __name__ == "__main__":
    print(jax.__version__, jax.devices())
    main(Path(sys.argv[1]))
