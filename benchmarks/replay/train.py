"""Trains small models with real processes (torch on the CPU, gloo) and writes a trace per rank.

    python benchmarks/replay/train.py dp-transformer --ranks 2 --out /tmp/traces

Kinds: ``dp-transformer``, ``dp-cnn`` (DistributedDataParallel), ``tp-transformer`` (matrices cut by columns and rows,
one all-reduce per half layer and direction), ``pp-transformer`` (stages that send and receive, all forward then all
backward). Needs ``pip install torch``. One thread per rank; a few steps run before the profiled ones.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WIDTH, HEADS, HIDDEN, LAYERS, BATCH, LENGTH = 192, 4, 768, 4, 4, 64
MICROBATCHES = 4


class Sum(torch.autograd.Function):
    """All-reduce forward, nothing backward."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
        values = values.contiguous().clone()
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Copy(torch.autograd.Function):
    """Nothing forward, all-reduce backward."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor) -> torch.Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.contiguous().clone()
        dist.all_reduce(gradient)
        return gradient


class ShardedBlock(nn.Module):
    """A transformer layer of which every rank holds its heads and its part of the hidden layer."""

    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.heads = HEADS // ranks
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, 3 * WIDTH // ranks)
        self.outer = nn.Linear(WIDTH // ranks, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN // ranks), nn.Linear(HIDDEN // ranks, WIDTH, bias=False)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        batch, length, _ = values.shape
        parts = self.inner(Copy.apply(self.norm1(values))).chunk(3, dim=-1)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        values = values + Sum.apply(self.outer(mixed))
        return values + Sum.apply(self.down(torch.relu(self.up(Copy.apply(self.norm2(values))))))


def layers(count: int) -> nn.Sequential:
    return nn.Sequential(
        *[nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True) for _ in range(count)]
    )


def cnn() -> nn.Sequential:
    parts: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128), (128, 128)):
        parts += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(128 * 4 * 4, 512), nn.ReLU(), nn.Linear(512, 10))


def data_parallel(kind: str, bucket_mb: float, limits_mb: list[float], half: bool) -> Any:
    buckets: dict[str, Any] = {"bucket_cap_mb_list": limits_mb} if limits_mb else {"bucket_cap_mb": bucket_mb}
    model = nn.parallel.DistributedDataParallel(cnn() if kind == "dp-cnn" else layers(LAYERS), **buckets)
    if half:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        model.register_comm_hook(None, fp16_compress_hook)
    inputs = torch.randn(16, 3, 64, 64) if kind == "dp-cnn" else torch.randn(BATCH, LENGTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def tensor_parallel(ranks: int) -> Any:
    model = nn.Sequential(*[ShardedBlock(ranks) for _ in range(LAYERS)])
    inputs, optimizer = torch.randn(BATCH, LENGTH, WIDTH), torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def pipeline_parallel(rank: int, ranks: int) -> Any:
    model = layers(LAYERS // ranks)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    shape = (BATCH, LENGTH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        kept = []
        for _ in range(MICROBATCHES):
            inputs = torch.randn(shape)
            if rank:
                dist.recv(inputs, rank - 1)
                inputs.requires_grad_()
            outputs = model(inputs)
            kept.append((inputs, outputs))
            if rank + 1 < ranks:
                dist.send(outputs.detach(), rank + 1)
        for inputs, outputs in reversed(kept):
            if rank + 1 < ranks:
                gradient = torch.empty(shape)
                dist.recv(gradient, rank + 1)
                outputs.backward(gradient)
            else:
                outputs.square().mean().backward()
            if rank:
                assert inputs.grad is not None
                dist.send(inputs.grad, rank - 1)
        optimizer.step()

    return step


def work(
    rank: int,
    kind: str,
    ranks: int,
    steps: int,
    bucket_mb: float,
    limits_mb: list[float],
    half: bool,
    rendezvous: str,
    out: str,
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=ranks)
    if kind == "tp-transformer":
        step = tensor_parallel(ranks)
    elif kind == "pp-transformer":
        step = pipeline_parallel(rank, ranks)
    else:
        step = data_parallel(kind, bucket_mb, limits_mb, half)
    path = f"{out}/rank{rank}.json.gz"
    schedule = torch.profiler.schedule(wait=2, warmup=2, active=steps)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=schedule,
        record_shapes=True,
        on_trace_ready=lambda one: one.export_chrome_trace(path),
    ) as profiler:
        for _ in range(steps + 5):
            step()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("dp-transformer", "dp-cnn", "tp-transformer", "pp-transformer"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--bucket-mb", type=float, default=2.0)
    parser.add_argument("--limits-mb", type=float, nargs="+", default=[], help="of each bucket (PyTorch 2.13)")
    parser.add_argument("--half", action="store_true", help="gradients are sent in 16 bits")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rank", type=int, help="be this rank only, and meet the others at --rendezvous")
    parser.add_argument("--rendezvous", help="as tcp://10.77.0.1:29500")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    buckets = args.bucket_mb, args.limits_mb, args.half
    if args.rank is not None:
        work(args.rank, args.kind, args.ranks, args.steps, *buckets, args.rendezvous, str(args.out))
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        options = (args.kind, args.ranks, args.steps, *buckets, f"file://{folder}/rendezvous", str(args.out))
        mp.spawn(work, options, nprocs=args.ranks)


if __name__ == "__main__":
    main()
