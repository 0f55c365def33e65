"""Train small models on one GPU with every micro-batch and recompute, and print a step's time and peak memory.

    python benchmarks/gpu/one_gpu.py --software hf --model 1b --seq 4096 --batch 8 >> runs.jsonl
    python benchmarks/gpu/one_gpu.py --software titan --model 3b --mbs 2 --ac selective --steps 20

``hf`` is Hugging Face transformers in eager PyTorch under autocast, ``fsdp`` the same sharded by FSDP2 over one rank,
``titan`` a plain Llama sharded by FSDP2 with torch.compile of every block, as torchtitan does. fp32 parameters, bf16
products, fused AdamW. Prints one line of JSON per strategy, or ``"outcome": "oom"``, and with one strategy alone the
step lines of Megatron-LM, so that ``forerun tune --trainer`` follows it.
"""

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from fsdp_ranks import recompute
from llama import SHAPES, Llama, rotation
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

GIB = 2**30
POLICIES = {"hf": ("none", "full"), "fsdp": ("none", "full"), "titan": ("none", "selective", "full")}
"""Recompute policies of each software: of nothing, of operators (every second product is kept), of whole blocks."""
MIXTURE = {"num_experts": 32, "num_experts_per_tok": 4, "moe_intermediate_size": 768}
"""Experts of the model ``moe``: Qwen3's layers on the width of 1b."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--software", choices=POLICIES, default="hf")
    parser.add_argument("--model", choices=(*SHAPES, "moe"), default="1b")
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=8, help="sequences a step")
    parser.add_argument("--mbs", type=int, help="one micro-batch alone (default: every power of two)")
    parser.add_argument("--ac", help="one recompute policy alone")
    parser.add_argument("--steps", type=int, default=5, help="of which the first two warm up")
    parser.add_argument("--layers", type=int, default=0, help="fewer than the model has")
    return parser.parse_args()


def transformers_model(options: argparse.Namespace) -> Any:
    """Make a causal language model of Hugging Face transformers with random parameters."""
    import transformers

    layers, width, inner, heads, kv_heads, vocab = SHAPES["1b" if options.model == "moe" else options.model]
    shape: dict[str, Any] = {
        "num_hidden_layers": options.layers or layers,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": options.seq,
        "use_cache": False,
        "tie_word_embeddings": False,
    }
    if options.model == "moe":
        config = transformers.Qwen3MoeConfig(**shape, **MIXTURE, head_dim=width // heads)
        config._experts_implementation = "grouped_mm"
    else:
        config = transformers.LlamaConfig(**shape)
    with torch.device("cuda"):
        return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)


def shard(model: Any, blocks: Any) -> Any:
    """Shard by FSDP2 over one rank, with products in bf16 and reduction in fp32."""
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def build(options: argparse.Namespace, policy: str) -> tuple[Any, Callable[[torch.Tensor], torch.Tensor]]:
    """Return the model, and a function from tokens to logits."""
    if options.software == "titan":
        layers, *shape = SHAPES[options.model]
        with torch.device("cuda"):
            model = Llama(options.layers or layers, *shape)
        recompute(model, "op" if policy == "selective" else policy)
        for block in model.layers:
            block.compile(fullgraph=policy == "none")
        shard(model, model.layers)
        cos, sin = rotation(options.seq, shape[0] // shape[2], "cuda")
        return model, lambda tokens: model(tokens, cos, sin).float()
    model = transformers_model(options)
    model.train()
    if policy == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if options.software == "fsdp":
        shard(model, model.model.layers)
        return model, lambda tokens: model(tokens).logits.float()

    def logits(tokens: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(tokens).logits.float()

    return model, logits


def step_times(options: argparse.Namespace, policy: str, mbs: int) -> list[float]:
    """Train and return the seconds of each step."""
    model, logits = build(options, policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    vocab = SHAPES["1b" if options.model == "moe" else options.model][-1]
    seconds = []
    for step in range(1, options.steps + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(options.batch // mbs):
            tokens, labels = torch.randint(0, vocab, (2, mbs, options.seq), device="cuda")
            F.cross_entropy(logits(tokens).flatten(0, 1), labels.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        if options.mbs:
            print(
                f" iteration {step:8d}/{options.steps:8d} | elapsed time per iteration (ms): {seconds[-1] * 1e3:.1f} |",
                flush=True,
            )
    return seconds


def measure(options: argparse.Namespace, policy: str, mbs: int) -> dict[str, Any]:
    """Measure one strategy and return its row: settings, step time and peak memory, or out of memory."""
    torch.cuda.reset_peak_memory_stats()
    row = {"software": options.software, "model": options.model, "seq": options.seq, "batch": options.batch}
    row |= {"mbs": mbs, "ac": policy, "layers": options.layers}
    try:
        seconds = step_times(options, policy, mbs)
    except torch.OutOfMemoryError:
        if options.mbs:
            raise
        return {**row, "outcome": "oom"}
    finally:
        gc.collect()
        torch.cuda.empty_cache()
        torch._dynamo.reset()
    peaks = torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB
    return {
        **row,
        "outcome": "ok",
        "step_time_s": round(statistics.median(seconds[2:]), 5),
        "steps_s": [round(value, 4) for value in seconds],
        "peak_allocated_gib": round(peaks[0], 3),
        "peak_reserved_gib": round(peaks[1], 3),
    }


def main() -> None:
    options = arguments()
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    for name, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "29511", "RANK": "0", "WORLD_SIZE": "1"}.items():
        os.environ.setdefault(name, value)
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    sizes = [options.mbs] if options.mbs else [2**k for k in range(10) if 2**k <= options.batch]
    for policy in [options.ac] if options.ac else POLICIES[options.software]:
        for mbs in sizes:
            print(json.dumps(measure(options, policy, mbs)), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
