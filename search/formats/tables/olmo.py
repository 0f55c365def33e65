"""OLMo 1 and LLM Foundry: one YAML file for ``scripts/train.py`` or ``train/train.py``, with similar keys.

Source: ``olmo/config.py`` of allenai/OLMo 0.6; ``llmfoundry/utils/config_utils.py`` of llm-foundry 0.22.
"""

from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.syntax import document

SHARDING = {"full_shard": 3, "shard_grad_op": 2, "no_shard": 0, "hybrid_shard": 3, "_hybrid_shard_zero2": 2}


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding: FSDP over all ranks unless replicas are copies."""
    settings = facts.settings
    strategy = settings.one_of("distributed_strategy", ("fsdp", "ddp", "single"))
    sharding = settings.text("fsdp.sharding_strategy", "fsdp_config.sharding_strategy")
    if strategy in ("ddp", "single"):
        facts.values["zero"] = 0
    else:
        stage = SHARDING.get((sharding or "full_shard").lower().removeprefix("shardingstrategy."), 3)
        facts.values["zero"] = stage
    word = settings.text("activation_checkpointing") or ""
    if "_in_" in word:
        facts.notes.append(f"activation_checkpointing {word} is read as recompute=full: of all layers")


LAUNCHER = read_launcher("olmo", syntax=document, adjust=adjust)
