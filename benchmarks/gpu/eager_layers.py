"""Time layers of Hugging Face models in eager PyTorch on one GPU: dense, and mixtures by kind of experts.

    python benchmarks/gpu/eager_layers.py OUT

Per layer: the difference of six and two layers, in bf16. ``host_ms_per_layer``: until the forward pass returns.
"""

import itertools
import sys
import time
from pathlib import Path
from typing import Any

import torch
from timing import Table, attempt
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

COMMON = {"num_attention_heads": 32, "vocab_size": 32000, "attn_implementation": "sdpa"}
WIDE = {"hidden_size": 4096, "intermediate_size": 14336, "num_key_value_heads": 8}
QWEN = {"hidden_size": 2048, "intermediate_size": 6144, "num_key_value_heads": 4, "head_dim": 128}
QWEN_EXPERTS = {"moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8}
MODELS = {
    "llama-8b": (LlamaForCausalLM, LlamaConfig, WIDE, ("",)),
    "qwen3-30b-a3b": (Qwen3MoeForCausalLM, Qwen3MoeConfig, {**QWEN, **QWEN_EXPERTS}, ("eager", "grouped_mm")),
    "mixtral-8x7b": (MixtralForCausalLM, MixtralConfig, {**WIDE, "num_local_experts": 8}, ("eager", "grouped_mm")),
}
CASES = ((1, 4096, False), (1, 4096, True), (4, 2048, False), (1, 512, False))
"""Sequences, sequence length, gradient checkpointing."""


def passes_ms(model: Any, tokens: torch.Tensor) -> tuple[float, float, float]:
    """Milliseconds of the forward pass, the backward pass, and the host in the forward pass: the fastest of four."""
    readings = []
    for _ in range(4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        returned = time.perf_counter()
        torch.cuda.synchronize()
        middle = time.perf_counter()
        loss.backward()
        torch.cuda.synchronize()
        end = time.perf_counter()
        model.zero_grad(set_to_none=True)
        readings.append(((middle - start) * 1e3, (end - middle) * 1e3, (returned - start) * 1e3))
    return min(readings, key=lambda one: one[0] + one[1])


def of_layers(name: str, kind: str, layers: int, mbs: int, seq: int, *, again: bool) -> tuple[float, float, float]:
    network, config, fields, _ = MODELS[name]
    with torch.device("cuda"):
        model = network(config(num_hidden_layers=layers, **COMMON, **fields)).to(torch.bfloat16)
    if kind:
        model.set_experts_implementation(kind)
    model.train()
    if again:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return passes_ms(model, torch.randint(0, 32000, (mbs, seq), device="cuda"))


def main(out: Path) -> None:
    columns = ("model", "experts_implementation", "checkpointing", "mbs", "seq", "dtype")
    measured = ("forward_ms_per_layer", "backward_ms_per_layer", "host_ms_per_layer")
    table = Table(out / "eager_layers.csv", (*columns, *measured))
    kinds = ((name, kind) for name, (*_, kinds) in MODELS.items() for kind in kinds)
    for (name, kind), (mbs, seq, again) in itertools.product(kinds, CASES):

        def measure(name=name, kind=kind, mbs=mbs, seq=seq, again=again) -> None:
            two, six = (of_layers(name, kind, layers, mbs, seq, again=again) for layers in (2, 6))
            per_layer = ((b - a) / 4 for a, b in zip(two, six, strict=True))
            values = (name, kind, int(again), mbs, seq, "bf16", *per_layer)
            table.row(**dict(zip((*columns, *measured), values, strict=True)))

        attempt(f"{name} {kind} {mbs} x {seq}", measure)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
