"""One measured run, mapped to the inputs of a prediction."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RULES: Mapping[str, str] = {
    "device": "variant of the device not stated: the most common one",
    "gpus": "blank gpus: the product of the degrees",
    "gpus_per_node": "blank gpus_per_node: the device's usual node (8; NVL72 and TPU 4), or all of a smaller run",
    "nic": "blank nic_gbit_per_node on several nodes: the device's usual NIC",
    "network": "network not stated: InfiniBand",
    "precision": "blank precision: that of the framework's published recipes, else bf16 (fp16 on devices without it)",
    "heads": "blank heads: of 128 elements",
    "kv_heads": "blank kv_heads: as many as heads",
    "ffn_hidden": "blank ffn_hidden: four times hidden; with a gate two thirds of that in steps of 64 (Megatron-LM)",
    "gated_mlp": "blank gated_mlp: gated where ffn_hidden is not four times hidden",
    "family": "norms, biases, positions and tied embeddings: GPT-2's where the MLP has no gate, else Llama's",
    "vocab": "blank vocab: that of the family the model's name belongs to, else Llama 2's with a gate or GPT-2's",
    "vocab_padding": "vocab: padded to a multiple of 128 (Megatron's make-vocab-size-divisible-by)",
    "expert_hidden": "experts: as wide as ffn_hidden; many of them share the width of a dense MLP",
    "truncated": "layers: fewer or more than the catalogue's model of that name has",
    "catalogue": "shape: the catalogue's model of that name",
    "lora": "LoRA without a column lora: adapters of rank 16 on attention and MLP",
    "moe_imbalance": "tokens: spread evenly over experts",
    "degree": "blank dp, tp or pp: what the others leave of the devices",
    "cp": "blank cp: what the others leave of the devices, 1 where they are stated",
    "ep": "blank ep: 1",
    "etp": "tensor degree of experts not stated: the framework's default",
    "virtual_pp": "blank virtual_pp, or pp=1: 1",
    "schedule": "blank schedule of a pipeline: interleaved with virtual stages, else 1f1b",
    "zero_stage": "blank zero_stage: the framework's default",
    "sequence_parallel": "blank sequence_parallel: the framework's default",
    "micro_batch": "blank micro_batch: 1",
    "recompute": "blank recompute: the framework's, else none; of dense models that ran the least that fits",
    "recompute_layers": "layers that are recomputed not stated: as few as fit the device",
    "software_date": "date of the software not stated, training in fp16: the middle of 2022",
    "framework": "framework unknown or not stated: Megatron-LM's overlaps, PyTorch's kernels one by one",
    "split": "layers that stages do not divide: head, MTP, embedding count as layers where that divides, else balanced",
    "graph_framework": "framework of an operator graph unknown or not stated: pytorch-ddp",
    "graph_precision": "blank precision of an operator graph: tf32 where the device has it, else fp32",
    "memory_kind": "kind of peak memory not stated: allocated",
    "strategy": "strategy assumed, not published",
    "imbalance": "experts loaded unevenly by an unstated factor: evenly",
}
"""Texts of the rules that fill in blank facts, by code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One measured run.

    ``file`` is the run_id without its number (else the CSV's name), which names a table of results.

    ``context`` and ``strategy`` belong to the kind of its model (``kinds``). ``context`` is shared (the same object) by
    all runs that differ in strategy only. ``step_time_s`` and ``peak_memory_bytes`` are None if not measured.
    ``memory_kind``: the peak is the allocator's "allocated" or "reserved" memory, or the memory in use on the "device";
    ``memory_of_first``: on the first pipeline stage, with rank 0 (else on the fullest stage). ``filled``: codes of the
    used ``RULES``. ``cells``: the row as written, for reports.
    """

    run_id: str
    file: str
    source: str
    group: str
    context: Any
    strategy: Any
    step_time_s: float | None
    peak_memory_bytes: float | None
    memory_kind: str
    outcome: str
    filled: tuple[str, ...]
    cells: Mapping[str, str]
    memory_of_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that cannot be expressed, and the reason."""

    run_id: str
    file: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSet:
    """All rows of some files: mapped and skipped ones."""

    runs: tuple[MeasuredRun, ...]
    skipped: tuple[Skipped, ...]
    measured: Mapping[str, int]
    """Rows with a measured step time, by ``file``, mapped or not."""
