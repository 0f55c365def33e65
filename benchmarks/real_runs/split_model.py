"""A small language model, split over tensor, pipeline and data ranks, whose operators run on an emulated device.

The layer of Shoeybi et al. (arXiv 1909.08053): products cut by columns, then by rows, with an all-reduce behind each
block in the forward pass and in front of it in the backward pass; the vocabulary is cut too. Names and shapes of
operators are those of forerun's cost rules.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from emulated import Device
from torch import Tensor
from torch.nn import functional as F

HIDDEN, LAYERS, HEADS, VOCAB, LENGTH = 64, 4, 4, 1024, 256
INNER = 4 * HIDDEN

device = Device()


def all_reduce(x: Tensor, group: Any) -> Tensor:
    """Add a tensor up over a group once the device is done with it."""
    device.wait()
    dist.all_reduce(x, group=group)
    device.restart()
    return x


class Product(torch.autograd.Function):
    """y = x w, w of [in, out]; both gradients are operators of their own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        y = x @ w
        device.run("gemm forward fp32", (x.shape[0], w.shape[1], w.shape[0], 1))
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        dx = gradient @ w.T
        device.run("gemm data_gradient fp32", (x.shape[0], w.shape[0], w.shape[1], 1))
        dw = x.T @ gradient
        device.run("gemm weight_gradient fp32", (w.shape[1], w.shape[0], x.shape[0], 1))
        return dx, dw


class Operator(torch.autograd.Function):
    """Any other operator: ``function`` of tensors, under ``names`` (forward, backward) and a ``shape``."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], names: Any, shape: Any, *inputs: Tensor) -> Tensor:
        ctx.names, ctx.shape = names, shape
        with torch.enable_grad():
            ctx.inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in inputs]
            ctx.output = function(*ctx.inputs)
        device.run(names[0], shape)
        return ctx.output.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        wanted = [x for x in ctx.inputs if x.requires_grad]
        found = iter(torch.autograd.grad(ctx.output, wanted, gradient))
        device.run(ctx.names[1], ctx.shape)
        return (None, None, None, *(next(found) if x.requires_grad else None for x in ctx.inputs))


class Fan(torch.autograd.Function):
    """Into a tensor-parallel block: nothing forward, an all-reduce backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return (gradient if ctx.group is None else all_reduce(gradient.contiguous(), ctx.group)), None


class Sum(torch.autograd.Function):
    """Out of a tensor-parallel block: an all-reduce forward, nothing backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Any) -> Tensor:
        return x if group is None else all_reduce(x.clone(), group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def stream(name: str, function: Callable[..., Tensor], elements: int, *inputs: Tensor) -> Tensor:
    """Run a memory-bound operator."""
    result: Tensor = Operator.apply(
        function, (f"stream {name} forward", f"stream {name} backward"), (elements,), *inputs
    )
    return result


class Stage:
    """The layers of one pipeline stage on one tensor rank. ``flat``: all parameters, ``gradient``: their gradients."""

    def __init__(self, first: int, count: int, tp: int, tp_group: Any) -> None:
        self.first, self.count, self.tp, self.group = first, count, tp, tp_group
        self.last = first + count == LAYERS
        shapes: dict[str, tuple[int, ...]] = {}
        if first == 0:
            shapes |= {"tokens": (VOCAB // tp, HIDDEN), "positions": (LENGTH, HIDDEN)}
        for layer in range(count):
            shapes |= {
                f"{layer} norm1": (2, HIDDEN),
                f"{layer} qkv": (HIDDEN, 3 * HIDDEN // tp),
                f"{layer} out": (HIDDEN // tp, HIDDEN),
                f"{layer} norm2": (2, HIDDEN),
                f"{layer} up": (HIDDEN, INNER // tp),
                f"{layer} down": (INNER // tp, HIDDEN),
            }
        if self.last:
            shapes |= {"norm": (2, HIDDEN), "head": (HIDDEN, VOCAB // tp)}
        sizes = [torch.Size(shape).numel() for shape in shapes.values()]
        self.flat = 0.02 * torch.randn(sum(sizes))
        self.gradient = torch.zeros_like(self.flat)
        parts = zip(shapes.items(), torch.split(self.flat, sizes), torch.split(self.gradient, sizes), strict=True)
        self.weights: dict[str, Tensor] = {}
        for (name, shape), values, gradients in parts:
            weight = values.view(shape).requires_grad_()
            weight.grad = gradients.view(shape)
            self.weights[name] = weight
        self.moments = [torch.zeros_like(self.flat) for _ in range(2)]

    def forward(self, x: Tensor, labels: Tensor | None) -> Tensor:
        """Return activations of a microbatch [tokens, hidden], or the loss on the last stage; ``x`` are token ids on
        the first."""
        batch = x.numel() // LENGTH if self.first == 0 else x.shape[0] // LENGTH
        tokens = batch * LENGTH
        if self.first == 0:
            x = self._embedded(x, tokens)
        for layer in range(self.count):
            x = self._layer(layer, x, batch)
        return self._loss(x, labels, tokens) if self.last and labels is not None else x

    def _embedded(self, ids: Tensor, tokens: int) -> Tensor:
        table = self.weights["tokens"]
        inside = ids.reshape(-1) % table.shape[0]
        x = stream("embedding fused", lambda w: F.embedding(inside, w), tokens * HIDDEN, table)
        return Sum.apply(x, self.group) + self.weights["positions"].repeat(tokens // LENGTH, 1)

    def _norm(self, name: str, x: Tensor, kind: str) -> Tensor:
        weight = self.weights[name]
        return stream(f"{kind} fused", lambda y, w: F.layer_norm(y, (HIDDEN,), w[0], w[1]), x.numel(), x, weight)

    def _layer(self, layer: int, x: Tensor, batch: int) -> Tensor:
        weights, size = self.weights, x.numel()
        add = lambda a, b: a + b  # noqa: E731  # one expression, used twice
        y = Fan.apply(self._norm(f"{layer} norm1", x, "layernorm"), self.group)
        y = self._attention(Product.apply(y, weights[f"{layer} qkv"]), batch)
        x = stream("residual_add fused", add, size, x, Sum.apply(Product.apply(y, weights[f"{layer} out"]), self.group))
        y = Fan.apply(self._norm(f"{layer} norm2", x, "layernorm"), self.group)
        y = Product.apply(y, weights[f"{layer} up"])
        y = stream("gelu fused", F.gelu, y.numel(), y)
        y = Sum.apply(Product.apply(y, weights[f"{layer} down"]), self.group)
        return stream("residual_add fused", add, size, x, y)

    def _attention(self, qkv: Tensor, batch: int) -> Tensor:
        heads, size = HEADS // self.tp, HIDDEN // HEADS

        def core(x: Tensor) -> Tensor:
            q, k, v = x.view(batch, LENGTH, 3, heads, size).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return y.transpose(1, 2).reshape(batch * LENGTH, heads * size)

        names = tuple(f"attention flash {way} fp32 causal" for way in ("forward", "backward"))
        return Operator.apply(core, names, (batch, heads, heads, LENGTH, LENGTH, size, size), qkv)

    def _loss(self, x: Tensor, labels: Tensor, tokens: int) -> Tensor:
        x = Fan.apply(self._norm("norm", x, "rmsnorm"), self.group)
        logits = Product.apply(x, self.weights["head"])
        rows = logits.shape[1]
        if self.group is not None:
            for _ in range(3):  # largest logit, sum of exponentials, logit of the label: numbers of every token
                all_reduce(torch.zeros(2 * tokens), self.group)
        inside = labels.reshape(-1) % rows
        return stream("cross_entropy eager", lambda y: F.cross_entropy(y, inside), tokens * rows, logits)

    def update(self) -> None:
        """One step of Adam over all parameters."""
        with torch.no_grad():
            first, second = self.moments
            first.lerp_(self.gradient, 0.1)
            second.mul_(0.95).addcmul_(self.gradient, self.gradient, value=0.05)
            self.flat.addcdiv_(first, second.sqrt().add_(1e-8), value=-1e-3)
            self.gradient.zero_()
        device.run("adam plain", (self.flat.numel(),))
        device.wait()
