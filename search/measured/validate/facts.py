"""Facts in the notes of a row (or in the model's name), for which the schema has no column.

The same words mean the same thing in every file; ``docs/measured-runs.md`` lists them for users.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from forerun.search.measured.validate.columns import TableRow
from forerun.search.measured.validate.vocabulary import first, table
from forerun.spaces.strategies.axes import MODULES

KERNELS = (
    (re.compile(r"kernel=flash_attention ?v?1", re.IGNORECASE), "flash1"),
    (re.compile(r"kernel=flash|flash_attention=True", re.IGNORECASE), "flash"),
    (re.compile(r"kernel=fused", re.IGNORECASE), "fused_softmax"),
    (re.compile(r"kernel=(torch|unfused)|flash_attention=False", re.IGNORECASE), "unfused"),
)
"""Spelling of attention kernels in notes, most specific first."""

_TIED = re.compile(r"tied_emb(?:eddings)?=(true|false)", re.IGNORECASE)
_LAST_STAGE = re.compile(r"layers on last stage=(\d+)")
_STAGES = re.compile(r"layers_per_stage=\[([\d, ]+)\]")
_PARTITION = re.compile(r"partition=\[([\d, ]+)\]")
_BUCKET = re.compile(r"ddp_bucket=([\d.]+) ?MB")
_SHARD_RANKS = re.compile(r"optimizer sharded over (\d+) ranks|zero1 group=(\d+)")
_SLICES = re.compile(r"\b(\d{1,4}) slice(?:s\b|\(s\))")
"""Slices of TPU pods in a run: each is a torus, connected by the hosts' networks."""
_EXPERT_TENSOR = re.compile(r"\bETP=(\d+)|_etp(\d+)")
_TF32 = re.compile(r"precision=tf32|theoryflops=495T")
"""FlagPerf names the peak that a run is compared with: 495 TFLOP/s is an H100's TF32, so fp32 there means TF32."""
_SOME_LAYERS = re.compile(r"_sAC_|\bAC ratio\b|selective (activation )?checkpointing ratio", re.IGNORECASE)
"""A share of the layers is checkpointed, chosen so that the others fit (logs of selective activation checkpointing)."""
_MODULES = "|".join(sorted(MODULES, key=len, reverse=True))
_RECOMPUTED = re.compile(rf"\bname=((?:{_MODULES})(?:_plus_(?:{_MODULES}))*)(?:;|$)")
"""Modules that a run recomputes, by the names of Megatron-Bridge's ablations."""
_NIC = re.compile(r"(\d{1,6}) ?Gbps node-node")
_MEGA = 1e6

_MODULES_BEFORE_LAYERS = 2
_MODULES_AROUND_LAYERS = 6
"""DeepSpeed's GPT2ModelPipe numbers pipeline modules, not layers. Two modules before the layers and four after them
follow from partitions balanced by measured layer times: with three before, stages with the embedding would have a layer
less than others, and stages with the head the same number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts in the notes of one row beyond its columns; None (or False) if absent.

    ``software``: facts in which the software of the run differs from its framework's profile.
    """

    device: str | None = None
    attention: str | None = None
    fused_norm: bool | None = None
    bucket_bytes: float | None = None
    tied: bool | None = None
    layers_per_stage: tuple[int, ...] | None = None
    light_ends: bool = False
    network: str | None = None
    nic_gbit_per_node: float | None = None
    memory_kind: str | None = None
    memory_of_first: bool = False
    shard_ranks: int | None = None
    tf32: bool = False
    checkpoints_some: bool = False
    recomputed: str | None = None
    expert_tensor: int | None = None
    slices: int = 1
    software: Mapping[str, Any] = field(default_factory=dict)


def facts_of(row: TableRow, layers: int | None, pp: int | None) -> Facts:
    """Read the notes of a row; ``layers`` and ``pp`` serve to read stage splits."""
    notes, where = row["notes"], f"{row['source']}; {row['notes']}"
    expert = _EXPERT_TENSOR.search(f"{notes}; {row['model']}")
    tied, bucket, nic = _TIED.search(notes), _BUCKET.search(notes), _NIC.search(row["source"])
    network, memory = (first(table("sources", part), where) for part in ("network", "memory"))
    device = first(table("sources", "devices"), where)
    return Facts(
        device=device[0]["device"] if device and device[0]["of"] == row["device"].lower() else None,
        attention=next((kernel for pattern, kernel in KERNELS if pattern.search(notes)), None),
        fused_norm=True if "RMS kernel" in notes or "use_fused_rms_norm=True" in notes else None,
        bucket_bytes=float(bucket[1]) * _MEGA if bucket else None,
        tied=tied[1].lower() == "true" if tied else None,
        layers_per_stage=None if layers is None or pp is None else _stages(row, layers, pp),
        light_ends="embedding-balanced pp partition" in notes or "account_for_embedding_loss" in row["model"],
        network=network[1].expand(network[0]["kind"]) if network else None,
        nic_gbit_per_node=float(nic[1]) if nic else network[0].get("nic_gbit") if network else None,
        memory_kind=memory[0]["kind"] if memory else None,
        memory_of_first=bool(memory and memory[0].get("of") == "first stage"),
        shard_ranks=int(shards[1] or shards[2]) if (shards := _SHARD_RANKS.search(notes)) else None,
        tf32=_TF32.search(notes) is not None,
        checkpoints_some=_SOME_LAYERS.search(notes) is not None,
        recomputed=modules[1].replace("_plus_", "+") if (modules := _RECOMPUTED.search(notes)) else None,
        slices=int(slices[1]) if (slices := _SLICES.search(notes)) else 1,
        expert_tensor=int(expert[1] or expert[2]) if expert else None,
        software=_software(told_of_software(row)),
    )


_SOFTWARE_BY = ("device", "precision", "schedule", "model", "framework", "switches")
"""Columns about the software of a run, besides its source and notes."""


def told_of_software(row: TableRow) -> str:
    """Return the text matched by entries about software and switches (``data/sources.yaml``)."""
    return "; ".join((row["source"], row["notes"], *(f"{name}={row[name]}" for name in _SOFTWARE_BY)))


def _software(text: str) -> dict[str, Any]:
    """Return the differences of a run's software from its profile: all matching entries, later ones override."""
    entries = [entry.data["facts"] for entry in table("sources", "software") if entry.pattern.search(text)]
    return {name: value for facts in entries for name, value in facts.items()}


def _stages(row: TableRow, layers: int, pp: int) -> tuple[int, ...] | None:
    """Return the layers of every pipeline stage if the notes name them."""
    notes = row["notes"]
    if match := _STAGES.search(notes):
        return _counts(match[1])
    if match := _PARTITION.search(notes):
        bounds = _counts(match[1])
        if len(bounds) == pp + 1 and bounds[-1] == layers + _MODULES_AROUND_LAYERS:
            inner = [min(max(bound - _MODULES_BEFORE_LAYERS, 0), layers) for bound in bounds]
            return tuple(after - before for before, after in pairwise(inner))
    if match := _LAST_STAGE.search(notes):
        return light_last(layers, pp, int(match[1]))
    known = first(table("sources", "last_stage"), f"{row['source']}; schedule={row['schedule']}")
    if known and int(float(row["vocab"] or 0)) in known[0]["layers_by_vocab"]:
        return light_last(layers, pp, known[0]["layers_by_vocab"][int(float(row["vocab"]))])
    return None


def light_last(layers: int, pp: int, last: int) -> tuple[int, ...] | None:
    """Divide layers so that the last stage has ``last``; later stages of the others get the remainder.

    The order of the remainder follows from the stage times of vocab_parallel-0001.

    >>> light_last(32, 8, 0)
    (4, 4, 4, 5, 5, 5, 5, 0)
    """
    if pp < 2 or not 0 <= last <= layers:
        return None
    base, larger = divmod(layers - last, pp - 1)
    return (*(base + (stage >= pp - 1 - larger) for stage in range(pp - 1)), last)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())
