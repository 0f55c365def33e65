"""A small GPT on gloo in replicas, FSDP, tensor ranks and stages, which prints the step lines of Megatron-LM.

``forerun tune --launcher local`` runs it on CPU ranks (``README.md`` beside it). A JSON file that ``ACTS`` names lets
starts fail, by their number from 0: "oom", "crash" or "hang". Needs torch, which forerun does not.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

HIDDEN, LAYERS, HEADS, VOCAB = 128, 4, 4, 1024


class Ranks:
    """The place of this process in the grid: tensor ranks innermost, stages outermost."""

    def __init__(self, tp: int, pp: int) -> None:
        self.rank, world = dist.get_rank(), dist.get_world_size()
        self.tp, self.pp, self.dp = tp, pp, world // (tp * pp)
        self.stage, self.span = self.rank // (tp * self.dp), tp * self.dp
        self.tensor = self._group([rank // tp for rank in range(world)])
        self.replicas = self._group([rank % tp + rank // self.span * world for rank in range(world)])

    def _group(self, keys: list[int]) -> Any:
        """Make all groups of ranks with the same key, and return our own."""
        own = None
        for key in sorted(set(keys)):
            group = dist.new_group([rank for rank, one in enumerate(keys) if one == key])
            own = group if keys[self.rank] == key else own
        return own


class Enter(torch.autograd.Function):
    """Hand an input to all tensor ranks; its gradients are summed."""

    @staticmethod
    def forward(ctx: Any, x: Any, ranks: Ranks) -> Any:
        """Pass the input on."""
        ctx.ranks = ranks
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Sum the gradients of the tensor ranks."""
        return _summed(gradient, ctx.ranks), None


class Leave(torch.autograd.Function):
    """Sum the outputs of all tensor ranks; the gradient is everybody's."""

    @staticmethod
    def forward(ctx: Any, x: Any, ranks: Ranks) -> Any:
        """Sum the outputs of the tensor ranks."""
        return _summed(x, ranks)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Pass the gradient on."""
        return gradient, None


class Gather(torch.autograd.Function):
    """Gather a parameter from its replicas, as FSDP does; its gradient is summed and shared out."""

    @staticmethod
    def forward(ctx: Any, shard: Any, ranks: Ranks) -> Any:
        """Return all rows of a parameter."""
        ctx.ranks = ranks
        whole = shard.new_empty(ranks.dp * len(shard), *shard.shape[1:])
        dist.all_gather_into_tensor(whole, shard.contiguous(), group=ranks.replicas)
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Return our rows of the gradient."""
        summed = gradient.new_empty(len(gradient) // ctx.ranks.dp, *gradient.shape[1:])
        dist.reduce_scatter_tensor(summed, gradient.contiguous(), group=ctx.ranks.replicas)
        return summed, None


def _summed(x: Any, ranks: Ranks) -> Any:
    x = x.contiguous().clone()
    if ranks.tp > 1:
        dist.all_reduce(x, group=ranks.tensor)
    return x


def block(x: Any, layer: dict[str, Any], ranks: Ranks) -> Any:
    """Run one layer on our share of its heads and its feed-forward."""
    hidden = Enter.apply(F.layer_norm(x, (HIDDEN,)), ranks)
    shape = (*hidden.shape[:2], 3, HEADS // ranks.tp, HIDDEN // HEADS)
    query, key, value = (hidden @ layer["qkv"].T).view(shape).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
    x = x + Leave.apply(mixed @ layer["out"].T, ranks)
    hidden = Enter.apply(F.layer_norm(x, (HIDDEN,)), ranks)
    return x + Leave.apply(F.gelu(hidden @ layer["up"].T) @ layer["down"].T, ranks)


def parameter(rows: int, columns: int, shards: int) -> Any:
    """Return our shard of a parameter of random numbers."""
    return torch.nn.Parameter(torch.randn(rows // shards, columns) * 0.02)


def train_step(layers: list[dict[str, Any]], table: Any, ranks: Ranks, args: argparse.Namespace) -> None:
    """Run all microbatches forward, then backward, and sum the gradients of the replicas."""
    kept, sharded = [], args.zero == 3 and ranks.dp > 1

    def use(one: Any) -> Any:
        return Gather.apply(one, ranks) if sharded else one

    for _ in range(args.batch // (ranks.dp * args.mbs)):
        tokens, entry = torch.randint(VOCAB, (args.mbs, args.seq)), None
        if ranks.stage:
            entry = torch.empty(args.mbs, args.seq, HIDDEN)
            dist.recv(entry, ranks.rank - ranks.span)
            entry.requires_grad_()
        x = F.embedding(tokens, use(table)) if entry is None else entry
        for layer in layers:
            x = block(x, {name: use(one) for name, one in layer.items()}, ranks)
        if ranks.stage < ranks.pp - 1:
            dist.send(x.detach().contiguous(), ranks.rank + ranks.span)
        else:
            x = F.cross_entropy((x @ use(table).T).flatten(0, 1), tokens.flatten())
        kept.append((entry, x))
    for entry, x in kept:
        gradient = None
        if ranks.stage < ranks.pp - 1:
            gradient = torch.empty(args.mbs, args.seq, HIDDEN)
            dist.recv(gradient, ranks.rank + ranks.span)
        x.backward(gradient)
        if entry is not None:
            dist.send(entry.grad.contiguous(), ranks.rank - ranks.span)
    used = [one for layer in layers for one in layer.values()] + ([table] if table is not None else [])
    if ranks.dp > 1 and not sharded:
        flat = torch.cat([one.grad.flatten() for one in used])
        dist.all_reduce(flat, group=ranks.replicas)


def act_of(rank: int) -> str:
    """Return the kind of failure of this start; empty for none."""
    acts = Path(os.environ.get("ACTS", ""))
    if not acts.is_file():
        return ""
    starts = acts.with_suffix(".starts")
    count = len(starts.read_text().splitlines()) if starts.exists() else 0
    dist.barrier()
    if rank == 0:
        with starts.open("a") as file:
            file.write(" ".join(sys.argv[1:]) + "\n")
    return str(json.loads(acts.read_text()).get(str(count), ""))


def main() -> None:
    """Train the steps that are asked for."""
    parser = argparse.ArgumentParser()
    for name in ("tp", "pp", "mbs", "zero", "batch", "seq", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks = Ranks(args.tp, args.pp)
    act = act_of(ranks.rank)
    shards = ranks.dp if args.zero == 3 else 1
    layers = [
        {
            "qkv": parameter(3 * HIDDEN // args.tp, HIDDEN, shards),
            "out": parameter(HIDDEN, HIDDEN // args.tp, shards),
            "up": parameter(4 * HIDDEN // args.tp, HIDDEN, shards),
            "down": parameter(HIDDEN, 4 * HIDDEN // args.tp, shards),
        }
        for _ in range(LAYERS // args.pp)
    ]
    table = parameter(VOCAB, HIDDEN, shards) if ranks.stage in (0, args.pp - 1) else None
    weights = [one for layer in layers for one in layer.values()] + ([table] if table is not None else [])
    optimizer = torch.optim.AdamW(weights, lr=1e-4)
    for step in range(1, args.steps + 1):
        if act == "oom":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        if act == "crash" and step == 6 and ranks.rank == 1:
            raise RuntimeError("a rank died")
        if act == "hang" and step == 6:
            time.sleep(3600)
        dist.barrier()
        began = time.perf_counter()
        train_step(layers, table, ranks, args)
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        if ranks.rank == 0:
            ms = 1e3 * (time.perf_counter() - began)
            print(f" iteration {step:8d}/{args.steps:8d} | elapsed time per iteration (ms): {ms:.1f} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
