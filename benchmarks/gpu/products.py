"""Measure dense and grouped products in bf16 and fp8, the casts around them, and long attention, on one GPU.

    python benchmarks/gpu/products.py OUT [dense|grouped|casts|attention]...

Writes OUT/dense.csv, grouped.csv, casts.csv and attention.csv; 90 s on an H100. Operands are random (products of zeros
run faster), times are medians of device events in bursts: a long run sustains 10 to 15 % less.
"""

import itertools
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from timing import Table, attempt, median_ms
from torch.nn.attention import SDPBackend, sdpa_kernel

FP8 = torch.float8_e4m3fn
LARGEST = torch.finfo(FP8).max
LLAMA = {"8B": (4096, 14336, 1024), "70B": (8192, 28672, 1024), "405B": (16384, 53248, 1024)}
"""Width, width of the feed-forward, width of keys."""
EXPERTS = {
    "deepseek-v3": ((4096, 7168), (7168, 2048)),
    "qwen3-30b": ((1536, 2048), (2048, 768)),
    "mixtral": ((28672, 4096), (4096, 14336)),
    "qwen3-235b": ((3072, 4096), (4096, 1536)),
}
"""(outputs, inputs) of the two products of an expert."""
ATTENTION = (
    (1, 4096, 32, 32, 128),
    (1, 8192, 32, 8, 128),
    (1, 8192, 8, 1, 128),
    (1, 32768, 8, 1, 128),
    (1, 131072, 8, 1, 128),
    (1, 131072, 4, 4, 128),
    (1, 262144, 4, 1, 128),
    (1, 524288, 1, 1, 128),
    (4, 1024, 16, 16, 64),
    (1, 4096, 16, 16, 192),
)
"""Batch, sequence, heads, heads of keys, width of a head."""


def random(*shape: int, **options: bool) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, **options)


def cast_tensorwise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = LARGEST / x.abs().amax().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-LARGEST, LARGEST).to(FP8), 1 / scale


def cast_rowwise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = LARGEST / x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-LARGEST, LARGEST).to(FP8), 1 / scale


def cast_block128(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = x.view(x.shape[0], -1, 128)
    scale = LARGEST / blocks.abs().amax(-1, keepdim=True).float().clamp(min=1e-12)
    return (blocks.float() * scale).clamp(-LARGEST, LARGEST).to(FP8).view(x.shape), 1 / scale


def cast_rowwise_transposed(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scale = LARGEST / x.abs().amax(0, keepdim=True).float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-LARGEST, LARGEST).to(FP8).t().contiguous(), 1 / scale


CASTS = {
    "tensorwise": cast_tensorwise,
    "rowwise": cast_rowwise,
    "block128": cast_block128,
    "rowwise_transposed": cast_rowwise_transposed,
}


def dense(out: Path) -> None:
    """Products x[m, k] w[n, k]^T of a Llama layer over tp 1, 4 and 8."""
    table = Table(out / "dense.csv", ("op", "dtype", "recipe", "m", "n", "k", "ms", "tflops"))
    shapes = {
        shape
        for hidden, ffn, keys in LLAMA.values()
        for tp in (1, 4, 8)
        for shape in (
            (2 * ffn // tp, hidden),
            (hidden, ffn // tp),
            ((hidden + 2 * keys) // tp, hidden),
            (hidden, hidden // tp),
        )
    }
    for m, (n, k) in itertools.product((4096, 8192), sorted(shapes)):
        x, w = random(m, k), random(n, k)
        (a, scale_a), (b, scale_b) = cast_tensorwise(x), cast_tensorwise(w)
        rows, columns = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")

        def scaled(one: torch.Tensor, other: torch.Tensor, fast: bool = True, a=a, b=b) -> torch.Tensor:
            options = {"out_dtype": torch.bfloat16, "use_fast_accum": fast}
            return torch._scaled_mm(a, b.t(), scale_a=one, scale_b=other, **options)

        calls = {
            ("bf16", ""): lambda x=x, w=w: x @ w.t(),
            ("fp8", "tensorwise"): lambda f=scaled, s=scale_a, t=scale_b: f(s, t),
            ("fp8", "rowwise"): lambda f=scaled, s=rows, t=columns: f(s, t),
            ("fp8", "rowwise_slow_accumulate"): lambda f=scaled, s=rows, t=columns: f(s, t, fast=False),
        }
        for (dtype, recipe), call in calls.items():
            ms = median_ms(call)
            shape = {"m": m, "n": n, "k": k, "ms": ms, "tflops": 2 * m * n * k / ms / 1e9}
            table.row(op="product", dtype=dtype, recipe=recipe, **shape)


def expert_rows(experts: int, tokens: int, imbalance: float) -> torch.Tensor:
    """Rows of every expert, multiples of 16 that add to ``experts * tokens``; ``imbalance`` 0.5 draws shares from half
    to one and a half times the mean."""
    if not imbalance:
        return torch.full((experts,), tokens)
    share = torch.rand(experts, generator=torch.Generator().manual_seed(0)) * 2 * imbalance + 1 - imbalance
    rows = ((share / share.sum() * experts * tokens / 16).floor() * 16).long()
    rows[-1] += experts * tokens - rows.sum()
    return rows


def grouped(out: Path) -> None:
    """Grouped products of experts: forward, data gradient and weight gradient, casts not included."""
    columns = ("op", "dtype", "experts", "tokens_per_expert", "imbalance", "n", "k", "ms", "tflops")
    table = Table(out / "grouped.csv", columns)
    for pairs, experts, tokens in itertools.product(EXPERTS.values(), (2, 8, 32), (128, 512, 1024, 4096)):
        for (n, k), imbalance in itertools.product(pairs, (0.0, 0.5) if tokens == 1024 else (0.0,)):
            if experts * n * k > 4e9 or experts * tokens > 65536:
                continue
            shape = {"experts": experts, "tokens_per_expert": tokens, "imbalance": imbalance, "n": n, "k": k}
            calls = grouped_calls(expert_rows(experts, tokens, imbalance), n, k)
            for (op, dtype), call in calls.items():

                def measure(op: str = op, dtype: str = dtype, call=call, shape=shape) -> None:
                    ms = median_ms(call, budget_ms=25)
                    work = 2 * shape["experts"] * shape["tokens_per_expert"] * shape["n"] * shape["k"]
                    table.row(op=op, dtype=dtype, **shape, ms=ms, tflops=work / ms / 1e9)

                attempt(f"{op} {dtype} {shape}", measure)


def grouped_calls(rows: torch.Tensor, n: int, k: int) -> dict:
    """The products of ``len(rows)`` experts with weights [n, k], by (operation, dtype)."""
    experts, total = len(rows), int(rows.sum())
    ends = rows.cumsum(0).to(torch.int32).to("cuda")
    x, w, dy = random(total, k), random(experts, n, k), random(total, n)
    x8, dy8 = cast_rowwise(x)[0], cast_rowwise(dy)[0]
    w8 = cast_rowwise(w.view(-1, k))[0].view(experts, n, k)
    wt8 = cast_rowwise(w.transpose(-2, -1).contiguous().view(-1, n))[0].view(experts, k, n)
    xt8, dyt8 = x.t().contiguous().to(FP8), dy.t().contiguous().to(FP8)
    ones = {size: torch.ones(size, device="cuda") for size in (total, experts * n, experts * k)}
    scale_w, scale_wt = torch.ones(experts, n, device="cuda"), torch.ones(experts, k, device="cuda")
    options = {"offs": ends, "out_dtype": torch.bfloat16, "use_fast_accum": True}
    products = torch._scaled_grouped_mm

    def one_by_one() -> None:
        for rows_of_one, weight in zip(x.split(rows.tolist()), w, strict=True):
            rows_of_one @ weight.t()

    return {
        ("forward", "bf16"): lambda: torch._grouped_mm(x, w.transpose(-2, -1), offs=ends),
        ("data_gradient", "bf16"): lambda: torch._grouped_mm(dy, w, offs=ends),
        ("weight_gradient", "bf16"): lambda: torch._grouped_mm(dy.t(), x, offs=ends),
        ("forward", "fp8_rowwise"): lambda: products(x8, w8.transpose(-2, -1), ones[total], scale_w, **options),
        ("data_gradient", "fp8_rowwise"): lambda: products(
            dy8, wt8.transpose(-2, -1), ones[total], scale_wt, **options
        ),
        ("weight_gradient", "fp8_rowwise"): lambda: products(
            dyt8, xt8.t(), ones[experts * n], ones[experts * k], **options
        ),
        ("forward_one_by_one", "bf16"): one_by_one,
    }


def casts(out: Path) -> None:
    """Casts of bf16 to fp8 with their scales; bytes counted: two read and one written an element."""
    table = Table(out / "casts.csv", ("op", "recipe", "compiled", "rows", "columns", "ms", "gbytes_per_s"))
    sizes = ((8192, 4096), (8192, 8192), (8192, 14336), (8192, 16384), (8192, 28672), (8192, 53248), (4096, 7168))
    for (rows, columns), (recipe, cast) in itertools.product((*sizes, (1024, 2048), (16384, 2048)), CASTS.items()):
        x = random(rows, columns)
        torch.compiler.reset()  # a ninth shape would not be compiled
        for label, call in (("eager", cast), ("compiled", torch.compile(cast, dynamic=False))):
            ms = median_ms(lambda call=call, x=x: call(x), budget_ms=25)
            rate = 3 * rows * columns / ms / 1e6
            table.row(op="cast", recipe=recipe, compiled=label, rows=rows, columns=columns, ms=ms, gbytes_per_s=rate)


def attention(out: Path) -> None:
    """Causal attention, forward and backward, of FlashAttention 2 and cuDNN."""
    shape_columns = ("kernel", "batch", "seq", "heads", "kv_heads", "head_dim")
    rates = ("forward_ms", "backward_ms", "forward_tflops_causal", "backward_tflops_causal")
    table = Table(out / "attention.csv", (*shape_columns, *rates))
    kernels = {"flash2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    for (b, s, h, g, d), (kernel, backend) in itertools.product(ATTENTION, kernels.items()):
        q, k, v = (random(b, heads, s, d, requires_grad=True) for heads in (h, g, g))

        def forward(q=q, k=k, v=v) -> torch.Tensor:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])

        with sdpa_kernel(backend):
            forward_ms = median_ms(forward, budget_ms=200)
            output = forward()
            gradient = torch.randn_like(output)
            backward_ms = median_ms(
                lambda q=q, k=k, v=v, o=output, g=gradient: torch.autograd.grad(o, (q, k, v), g, retain_graph=True),
                budget_ms=200,
            )
        work = 2 * b * h * s * s * d
        measured = (forward_ms, backward_ms, work / forward_ms / 1e9, 2.5 * work / backward_ms / 1e9)
        values = (kernel, b, s, h, g, d, *measured)
        table.row(**dict(zip((*shape_columns, *rates), values, strict=True)))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    print(torch.cuda.get_device_name(), torch.__version__, torch.version.cuda)
    for probe in (dense, grouped, casts, attention):
        if not sys.argv[2:] or probe.__name__ in sys.argv[2:]:
            attempt(probe.__name__, lambda probe=probe: probe(target))
