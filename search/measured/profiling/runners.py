"""Operators in torch: a function that runs an operator once, from its name and shape in cost rules.

Imports torch: load it only to measure.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from forerun.search.measured.profiling.operators import ProfiledOperator
from forerun.simulator.costs.attention import MATERIALISED

Once = Callable[[], Any]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
WIDTH = 4096
"""Longest rows of an operator whose shape has only a number of elements."""
_LEARNING = 1e-3


class Unmeasurable(Exception):
    """The machine or its torch cannot run the operator; the text has the reason."""


def runner(operator: ProfiledOperator, precision: str, device: str) -> Once:
    """Return a function that runs an operator once on ``device`` (cpu, cuda).

    Raises:
        Unmeasurable: torch has no such operator or precision.
    """
    words = operator.name.split()
    if words[0] == "gemm":
        return _gemm(words[1], _dtype(words[2]), operator.shape, device)
    if words[0] == "conv":
        return _convolution(words[1], words[2], operator.shape, device)
    if words[0] == "pass":
        return _pass(operator.shape, _dtype(precision), device)
    if words[0] == "attention":
        return _attention(words, operator.shape, device)
    if words[0] == "stream":
        return _stream(words[1], words[2] == "fused", words[3] == "backward", operator.shape, _dtype(precision), device)
    if words[0] == "adam":
        return _adam(operator.shape, device, master=words[1] == "master", dtype=_dtype(precision))
    raise Unmeasurable(f"{words[0]} is not an operator that can be measured")


def needed_bytes(operator: ProfiledOperator, precision: str) -> float:
    """Estimate the bytes of an operator's tensors."""
    width = 4.0 if precision in ("fp32", "tf32") else 2.0
    words, shape = operator.name.split(), operator.shape
    if words[0] == "gemm":
        m, n, k, groups = shape
        return groups * width * (m * k + k * n + 3 * m * n)
    if words[0] == "conv":
        b, c, f, w, pixels_in, pixels_out, groups, *_ = shape
        return width * (2 * b * (c * pixels_in + f * pixels_out) + c * f * w / groups)
    if words[0] == "pass":
        return shape[0]
    if words[0] == "attention":
        b, h, g, sq, sk, d, dv = shape
        scores = 3 * sq * sk if words[1] in MATERIALISED else 0.0
        return b * width * (2 * h * sq * (d + dv) + 2 * g * sk * (d + dv) + h * scores)
    return (32.0 if words[0] == "adam" else 6 * width) * shape[0]


def _dtype(precision: str) -> Any:
    if precision not in DTYPES:
        raise Unmeasurable(f"products in {precision} need a library besides torch")
    return DTYPES[precision]


def _gemm(kind: str, dtype: Any, shape: tuple[float, ...], device: str) -> Once:
    m, n, k, groups = (max(1, round(value)) for value in shape)
    a = torch.randn((groups, m, k), device=device).to(dtype)
    b = torch.randn((groups, k, n), device=device).to(dtype)
    if groups == 1:
        a, b = a[0], b[0]
    # Operands have the memory layout of a linear layer: the weight is [out, in], gradients multiply transposes.
    if kind == "forward":
        weight = b.transpose(-1, -2).contiguous().transpose(-1, -2)
        return lambda: torch.matmul(a, weight)
    if kind == "data_gradient":
        return lambda: torch.matmul(a, b)
    left = a.transpose(-1, -2).contiguous().transpose(-1, -2)
    if kind in ("weight_gradient", "weight_gradient_added"):
        wide = torch.float32 if kind == "weight_gradient" else dtype
        total = torch.zeros(torch.matmul(left, b).shape, device=device, dtype=wide)
        return lambda: total.add_(torch.matmul(left, b))
    return lambda: torch.matmul(left, b)


def _convolution(direction: str, precision: str, shape: tuple[float, ...], device: str) -> Once:
    """One direction of a convolution of known volumes, with extents and windows as even as possible."""
    b, c, f, window, pixels_in, pixels_out, groups, places = (max(1, round(value)) for value in shape[:8])
    dtype, axes = _dtype(precision), places - 1
    inside, outside, kernel = (_extents(volume, axes) for volume in (pixels_in, pixels_out, window))
    if axes == 0:
        inside, outside, kernel, axes = (1, pixels_in), (1, pixels_out), (1, 1), 2
    stride = tuple(max(1, round(one / other)) for one, other in zip(inside, outside, strict=True))
    missing = [(o - 1) * s + k - i for i, o, s, k in zip(inside, outside, stride, kernel, strict=True)]
    padding = tuple(max(0, -(-one // 2)) for one in missing)
    x = torch.randn((b, c, *inside), device=device).to(dtype)
    weight = torch.randn((f, c // groups, *kernel), device=device).to(dtype)
    forward = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[axes]

    def run() -> Any:
        return forward(x, weight, None, stride, padding, 1, groups)

    # Training scripts benchmark cuDNN's algorithms; fp32 must not use tf32.
    flags = {"enabled": True, "benchmark": True, "deterministic": False, "allow_tf32": precision == "tf32"}
    if direction == "forward":
        return _with_cudnn(flags, run)
    gradient = torch.randn_like(run())
    mask = (direction == "data_gradient", direction == "weight_gradient", False)
    backward = torch.ops.aten.convolution_backward
    rest = (None, stride, padding, (1,) * axes, False, (0,) * axes, groups, mask)
    return _with_cudnn(flags, lambda: backward(gradient, x, weight, *rest))


def _with_cudnn(flags: Mapping[str, bool], run: Once) -> Once:
    def once() -> Any:
        with torch.backends.cudnn.flags(**flags):
            return run()

    return once


def _extents(volume: int, axes: int) -> tuple[int, ...]:
    """Return one factor of a volume per axis, as even as possible, in ascending order."""
    if axes <= 1:
        return (volume,) * axes
    root = round(volume ** (1 / axes))
    first = next(one for one in range(max(root, 1), 0, -1) if volume % one == 0)
    return (first, *_extents(volume // first, axes - 1))


def _pass(shape: tuple[float, ...], dtype: Any, device: str) -> Once:
    """A pass over tensors that moves a number of bytes: a copy, which reads one half and writes the other."""
    x = torch.empty(max(1, round(shape[0] / 2 / dtype.itemsize)), device=device, dtype=dtype)
    target = torch.empty_like(x)
    return lambda: target.copy_(x)


def _attention(words: list[str], shape: tuple[float, ...], device: str) -> Once:
    kernel, way, precision, mask = words[1:5]
    if len(words) > 5:
        raise Unmeasurable("attention within a window needs a kernel besides torch's")
    b, h, g, sq, sk, d, dv = (max(1, round(value)) for value in shape)
    dtype, backward, causal = _dtype(precision), way == "backward", mask == "causal"
    q, k, v = (
        torch.randn((b, heads, length, size), device=device).to(dtype).requires_grad_(backward)
        for heads, length, size in ((h, sq, d), (g, sk, d), (g, sk, dv))
    )

    def forward() -> Any:
        if kernel in MATERIALISED:
            keys, values = (x if g == h else x.repeat_interleave(h // g, dim=1) for x in (k, v))
            scores = torch.matmul(q, keys.transpose(-1, -2)) * d**-0.5
            if causal:
                scores = scores.masked_fill(hidden, float("-inf"))
            return torch.matmul(torch.softmax(scores, dim=-1), values)
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=g != h)

    hidden = torch.ones((sq, sk), dtype=torch.bool, device=device).triu(1 + sk - sq)
    if not backward:
        return forward
    out = forward()
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True)


class _Tensors:
    """Operands of memory-bound operators: rows of ``width``, a second input, weights, a small table, labels."""

    def __init__(self, elements: int, dtype: Any, device: str) -> None:
        self.width = min(WIDTH, elements)
        rows = max(1, elements // self.width)
        self.x = torch.randn((rows, self.width), device=device).to(dtype)
        self.other = torch.randn_like(self.x)
        self.weight = torch.ones(self.width, device=device, dtype=dtype)
        self.table = torch.randn((1024, self.width), device=device).to(dtype)
        self.places = torch.randint(1024, (rows,), device=device)
        self.labels = torch.randint(self.width, (rows,), device=device)
        self.wide = torch.float32 if dtype != torch.float32 else torch.bfloat16


def _rotated(t: _Tensors) -> Any:
    half = t.width // 2
    low, high, angle = t.x[:, :half], t.x[:, half : 2 * half], t.weight[:half]
    return torch.cat((low * angle - high * angle, high * angle + low * angle), dim=-1)


def _eager_rmsnorm(t: _Tensors) -> Any:
    wide = t.x.float()
    return t.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True))).to(t.x.dtype)


_FORMS: Mapping[str, tuple[Callable[[_Tensors], Any], tuple[str, ...]]] = {
    "layernorm": (lambda t: F.layer_norm(t.x, (t.width,), t.weight, t.weight), ("x", "weight")),
    "rmsnorm": (lambda t: F.rms_norm(t.x, (t.width,), t.weight), ("x", "weight")),
    "eager rmsnorm": (_eager_rmsnorm, ("x", "weight")),
    "gelu": (lambda t: F.gelu(t.x), ("x",)),
    "swiglu": (lambda t: F.silu(t.x) * t.other, ("x", "other")),
    "softmax": (lambda t: torch.softmax(t.x, dim=-1), ("x",)),
    "residual_add": (lambda t: t.x + t.other, ("x", "other")),
    "residual_dropout": (lambda t: F.dropout(t.x, 0.1) + t.other, ("x", "other")),
    "dropout": (lambda t: F.dropout(t.x, 0.1), ("x",)),
    "copy": (lambda t: t.x.clone(), ("x",)),
    "cast": (lambda t: t.x.to(t.wide), ("x",)),
    "cast_scaled": (lambda t: (t.x * t.x.detach().abs().amax()).to(t.wide), ("x",)),
    "rope": (_rotated, ("x",)),
    "embedding": (lambda t: F.embedding(t.places, t.table), ("table",)),
    "cross_entropy": (lambda t: F.cross_entropy(t.x.float(), t.labels), ("x",)),
}
"""Memory-bound operators (``forerun.simulator.costs.stream_operators``) and their inputs with gradients."""


def _stream(name: str, fused: bool, backward: bool, shape: tuple[float, ...], dtype: Any, device: str) -> Once:
    known = name if fused or f"eager {name}" not in _FORMS else f"eager {name}"
    if known not in _FORMS:
        raise Unmeasurable(f"there is no way to run {name} alone")
    form, inputs = _FORMS[known]
    tensors = _Tensors(max(2, round(shape[0])), dtype, device)
    if not backward:
        return lambda: form(tensors)
    wanted = [getattr(tensors, one).requires_grad_() for one in inputs]
    out = form(tensors)
    gradient = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, wanted, gradient, retain_graph=True)


def _adam(shape: tuple[float, ...], device: str, *, master: bool, dtype: Any) -> Once:
    count = max(1, round(shape[0]))
    weight = torch.zeros(count, device=device, requires_grad=True)
    weight.grad = torch.randn(count, device=device)
    half = torch.zeros(count, device=device, dtype=dtype) if master else None
    optimizer = torch.optim.AdamW([weight], lr=_LEARNING, fused=True)

    def once() -> None:
        optimizer.step()
        if half is not None:
            half.copy_(weight.detach())

    return once
