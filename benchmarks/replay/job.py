"""A training of a few steps that forerun knows nothing of, and that notes itself when its steps and waits began.

    torchrun --nproc-per-node 2 benchmarks/replay/job.py ddp --steps 40 --notes /tmp/notes

Kinds: ``ddp``, ``fsdp`` (FSDP 2, every exchange waited for at once), ``pipeline`` (two stages, GPipe). Rank N writes
``N.json`` into ``--notes``: per step when its optimizer began and what processor time it took, and per exchange when it
came and when it went on, by the machine's clock (all ranks on one machine). ``--slow RANK=MS`` lets one rank sleep in
every step. Needs torch; one thread per rank.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

LAYERS, BATCH, MICROBATCHES = 6, 192, 4

Exchanges = list[list[float]]
"""[came, went on] of every exchange of one step of this rank."""


def network(layers: int, width: int) -> nn.Sequential:
    """Return square layers whose products take milliseconds each."""
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)])


def ddp(seen: Exchanges, width: int, bucket_mb: float) -> tuple[nn.Module, Callable[[], None]]:
    """Data parallel: gradients are summed up under the backward pass, which ends when the last sum has come."""
    model = nn.parallel.DistributedDataParallel(network(LAYERS, width), bucket_cap_mb=bucket_mb)

    def exchange(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradients = bucket.buffer().div_(dist.get_world_size())
        seen.append([time.monotonic(), 0.0])
        return dist.all_reduce(gradients, async_op=True).get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, exchange)
    inputs = torch.randn(BATCH, width)

    def run() -> None:
        model(inputs).square().mean().backward()
        for one in seen:  # a rank computes until its last bucket is ready: only from then on can it wait
            one[:] = [seen[-1][0], time.monotonic()]
        del seen[:-1]

    return model, run


def noted(call: Callable[..., Any], seen: Exchanges) -> Callable[..., Any]:
    """Return an exchange that notes when it is entered and left."""

    def exchange(*values: Any, **named: Any) -> Any:
        came = time.monotonic()
        result = call(*values, **named)
        if result is not None and named.get("async_op"):
            result.wait()
        seen.append([came, time.monotonic()])
        return result

    return exchange


def fsdp(seen: Exchanges, width: int, _: float) -> tuple[nn.Module, Callable[[], None]]:
    """Parameters in slices: gathered before each layer's pass, gradients summed up into slices behind it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for name in ("all_gather_into_tensor", "reduce_scatter_tensor", "all_gather_single", "reduce_scatter_single"):
        if hasattr(dist, name):  # the second names since PyTorch 2.12
            setattr(dist, name, noted(getattr(dist, name), seen))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = network(LAYERS, width)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    inputs = torch.randn(BATCH, width)
    return model, lambda: model(inputs).square().mean().backward()


def pipeline(seen: Exchanges, width: int, _: float) -> tuple[nn.Module, Callable[[], None]]:
    """A stage per rank: all microbatches forward, then all backward."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = network(LAYERS // ranks, width)
    receive, send, shape = noted(dist.recv, seen), noted(dist.send, seen), (BATCH // 2, width)

    def run() -> None:
        kept = []
        for _ in range(MICROBATCHES):
            inputs = torch.randn(shape)
            if rank:
                receive(inputs, rank - 1)
                inputs.requires_grad_()
            kept.append((inputs, model(inputs)))
            if rank + 1 < ranks:
                send(kept[-1][1].detach(), rank + 1)
        for inputs, outputs in reversed(kept):
            if rank + 1 < ranks:
                gradient = torch.empty(shape)
                receive(gradient, rank + 1)
                outputs.backward(gradient)
            else:
                outputs.square().mean().backward()
            if rank and inputs.grad is not None:
                send(inputs.grad, rank - 1)

    return model, run


KINDS = {"ddp": ddp, "fsdp": fsdp, "pipeline": pipeline}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--bucket-mb", type=float, default=2.0)
    parser.add_argument("--slow", default="", help="RANK=MS")
    parser.add_argument("--notes", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    slow_rank, _, slow_ms = args.slow.partition("=")
    seen: Exchanges = []
    model, run = KINDS[args.kind](seen, args.width, args.bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def step() -> dict[str, Any]:
        seen.clear()
        worked = time.process_time()
        if args.slow and rank == int(slow_rank):
            time.sleep(float(slow_ms) * 1e-3)
        optimizer.zero_grad()
        run()
        updating = time.monotonic()
        optimizer.step()
        exchanges = [list(one) for one in seen]
        return {"updating": updating, "cpu": time.process_time() - worked, "exchanges": exchanges}

    noted = [step() for _ in range(args.steps)]
    args.notes.mkdir(parents=True, exist_ok=True)
    (args.notes / f"{rank}.json").write_text(json.dumps(noted), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
