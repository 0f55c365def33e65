"""OLMo 1: one YAML file for ``scripts/train.py``. Source: ``olmo/config.py`` of allenai/OLMo 0.6."""

import re

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.harmless import harmless_by
from forerun.search.formats.keys import Launcher, LaunchFacts, decide
from forerun.search.formats.syntax import document, is_yaml
from forerun.spaces.strategies import Recompute

SHARDING = {"full_shard": 3, "shard_grad_op": 2, "no_shard": 0, "hybrid_shard": 3, "_hybrid_shard_zero2": 2}
LAYERS = {
    "whole_layer": Recompute.FULL,
    "one_in_two": Recompute.FULL,
    "one_in_three": Recompute.FULL,
    "one_in_four": Recompute.FULL,
    "one_in_eight": Recompute.FULL,
    "two_in_three": Recompute.FULL,
    "three_in_four": Recompute.FULL,
    "fine_grained": Recompute.SELECTIVE,
    "none": None,
    "": None,
}


def adjust(facts: LaunchFacts) -> None:
    """Settle what is sharded: FSDP over all unless replicas are copies."""
    settings = facts.settings
    strategy = settings.one_of("distributed_strategy", ("fsdp", "ddp", "single"))
    sharding = settings.text("fsdp.sharding_strategy")
    if strategy in ("ddp", "single"):
        facts.values["zero"] = 0
    else:
        stage = SHARDING.get((sharding or "full_shard").lower().removeprefix("shardingstrategy."), 3)
        facts.values["zero"] = stage
    word = settings.text("activation_checkpointing") or ""
    if "_in_" in word:
        facts.notes.append(f"activation_checkpointing {word} is read as recompute=full: of all layers")


LAUNCHER = Launcher(
    name="olmo",
    version="0.6",
    title="OLMo",
    keys=(
        decide("global_batch", "global_train_batch_size"),
        decide("mbs", "device_train_microbatch_size"),
        decide("seq_len", "model.max_sequence_length"),
        decide("replicate", "fsdp.hybrid_sharding_num_model_replicas"),
        decide("recompute", "activation_checkpointing", meaning="layers that are recomputed", words=LAYERS),
        decide("precision", "precision", words={"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32"}),
        decide("model.layers", "model.n_layers"),
        decide("model.hidden", "model.d_model"),
        decide("model.heads", "model.n_heads"),
        decide("model.kv_heads", "model.n_kv_heads"),
        decide("model.vocab", "model.vocab_size"),
    ),
    syntax=document,
    marks=lambda source: is_yaml(source) and _marked(source),
    harmless=harmless_by("olmo"),
    adjust=adjust,
    assumed={"precision": "fp32"},
)


def _marked(source: LaunchFile) -> bool:
    lines = r"^(device_train_microbatch_size|global_train_batch_size|fsdp|max_duration)\s*:"
    return len(set(re.findall(lines, source.text, re.MULTILINE))) > 1
