"""Measure peak memory and compute time of one rank of FSDP2 with tensor ranks, on one GPU.

    python benchmarks/gpu/fsdp_ranks.py --model 70b --dp 32 --tp 8 --ac full >> fsdp.jsonl

A fake process group stands for the other ranks: an all-gather copies the rank's own shard, so that every buffer is
really allocated and every kernel of the rank really runs, without traffic. Set up as torchtitan does: fp32 parameters
with bf16 mixed precision, fused AdamW, reduction in fp32, sequence parallel, logits cast to fp32 before the loss.
Prints one line of JSON: GiB allocated and reserved at the peak, used on the device, seconds of each step.
"""

import argparse
import contextlib
import json
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from llama import SHAPES, Llama, rotation
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

GIB = 2**30
KEPT = {
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}
"""What recompute by operator keeps, besides every second product."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="8b")
    parser.add_argument("--dp", type=int, default=8, help="ranks that share states")
    parser.add_argument("--tp", type=int, default=1, help="tensor ranks")
    parser.add_argument("--mbs", type=int, default=1)
    parser.add_argument("--micro", type=int, default=1, help="microbatches a step")
    parser.add_argument("--seq", type=int, default=8192)
    parser.add_argument("--ac", choices=("none", "op", "half", "full"), default="none", help="recompute")
    parser.add_argument("--params", choices=("fp32", "bf16"), default="fp32", help="stored parameters and moments")
    parser.add_argument("--compile", type=int, default=0, help="1: torch.compile of every block")
    parser.add_argument("--lossp", type=int, default=0, help="1: the vocabulary stays cut in the loss")
    parser.add_argument("--reshard", type=int, default=1, help="0: parameters stay gathered until the backward pass")
    parser.add_argument("--layers", type=int, default=0, help="fewer than the model has")
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def cut_over_tensor_ranks(model: Llama, mesh: DeviceMesh, *, cut_loss: bool) -> None:
    """Cut the model as torchtitan does, with sequence parallel."""
    head = ColwiseParallel(
        input_layouts=Shard(1), output_layouts=Shard(-1) if cut_loss else Replicate(), use_local_output=not cut_loss
    )
    embedding = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    parallelize_module(model, mesh, {"tok_embeddings": embedding, "norm": SequenceParallel(), "output": head})
    gathered = {"input_layouts": (Shard(1), None, None), "desired_input_layouts": (Replicate(), None, None)}
    columns = ("attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3")
    rows = ("attention.wo", "feed_forward.w2")
    for block in model.layers:
        plan = {
            "attention_norm": SequenceParallel(),
            "ffn_norm": SequenceParallel(),
            "attention": PrepareModuleInput(**gathered),
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            **{name: ColwiseParallel() for name in columns},
            **{name: RowwiseParallel(output_layouts=Shard(1)) for name in rows},
        }
        parallelize_module(block, mesh, plan)


def keep_every_second_product() -> Any:
    """Contexts of recompute by operator: attention, reduced tensors and every second product are kept."""
    products = {False: 0, True: 0}

    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        if operator is torch.ops.aten.mm.default:
            products[context.is_recompute] += 1
            keep = products[context.is_recompute] % 2 == 1
        else:
            keep = operator in KEPT
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def recompute(model: Llama, policy: str) -> None:
    """Wrap the blocks that compute their forward pass again."""
    for index, block in enumerate(model.layers):
        if policy == "full" or (policy == "half" and index % 2 == 0):
            model.layers[index] = checkpoint_wrapper(block, preserve_rng_state=False)
        elif policy == "op":
            model.layers[index] = checkpoint_wrapper(
                block, context_fn=keep_every_second_product, preserve_rng_state=False
            )


def built(options: argparse.Namespace, mesh: DeviceMesh, device: str) -> Llama:
    """The model of rank 0: cut, wrapped, sharded, its shards filled with random numbers."""
    layers, *shape = SHAPES[options.model]
    with torch.device("meta"):
        model = Llama(options.layers or layers, *shape)
        model = model.to(torch.bfloat16) if options.params == "bf16" else model
    if options.tp > 1:
        cut_over_tensor_ranks(model, mesh["tp"], cut_loss=bool(options.lossp))
    recompute(model, options.ac)
    for block in model.layers if options.compile else ():
        block.compile(fullgraph=options.ac == "none")
    reduced = torch.float32 if options.params == "fp32" else torch.bfloat16
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
    for block in model.layers:
        last = block is model.layers[-1]
        fully_shard(block, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=bool(options.reshard) and not last)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=bool(options.reshard))
    model.to_empty(device=device)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.to_local().normal_(0, 0.02)
    return model


def memory_gib() -> list[float]:
    """GiB allocated now, allocated and reserved at the peak."""
    values = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return [round(value / GIB, 3) for value in values]


def main() -> None:
    options = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("fake", rank=0, world_size=options.dp * options.tp, store=FakeStore())
    mesh = init_device_mesh(device, (options.dp, options.tp), mesh_dim_names=("dp", "tp"))
    model = built(options, mesh, device)
    _, width, _, heads, _, vocab = SHAPES[options.model]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=device == "cuda")
    cos, sin = rotation(options.seq, width // heads, device)
    seconds, marks = [], {}
    for _ in range(options.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(options.micro):
            tokens, labels = torch.randint(0, vocab, (2, options.mbs, options.seq), device=device)
            with loss_parallel() if options.lossp and options.tp > 1 else contextlib.nullcontext():
                predicted = model(tokens, cos, sin)
                loss = F.cross_entropy(predicted.flatten(0, 1).float(), labels.flatten(0, 1))
                del predicted
                marks["forward"] = memory_gib()
                loss.backward()
            marks["backward"] = memory_gib()
        optimizer.step()
        optimizer.zero_grad()
        marks["optimizer"] = memory_gib()
        torch.cuda.synchronize()
        seconds.append(round(time.perf_counter() - start, 5))
    _, allocated, reserved = memory_gib()
    free, total = torch.cuda.mem_get_info()
    peaks = {"peak_allocated_gib": allocated, "peak_reserved_gib": reserved, "device_used_gib": (total - free) / GIB}
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    print(json.dumps({**vars(options), **peaks, "retries": retries, "steps_s": seconds, "marks": marks}))


if __name__ == "__main__":
    main()
