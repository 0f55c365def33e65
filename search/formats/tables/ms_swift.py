"""ms-swift 4: ``swift sft`` (transformers' Trainer with DeepSpeed or FSDP).  ``megatron sft`` is read as Megatron-LM.

Source: ``swift/arguments`` 4.6.0: gradient checkpointing is on, a step has 16 sequences unless accumulation is stated,
``--deepspeed`` is a path or the name of a built-in configuration.
"""

from forerun.search.formats.adapters import LORA
from forerun.search.formats.facts import world
from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.syntax import arguments
from forerun.search.formats.tables.trainer import read_fsdp, sharded_by_name

STAGES = {f"zero{stage}{suffix}": stage for stage in range(4) for suffix in ("", "_offload")}
BATCH = 16
TUNERS = ("tuner_type", "train_type", "sft_type")
"""Names of the setting of adapters by version; the default is LoRA."""


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding, and ms-swift's default accumulation."""
    sharded_by_name(facts, STAGES, "deepspeed")
    if (facts.settings.text("fsdp") or "").lower().startswith("fsdp2"):
        facts.values.setdefault("zero", 3)
    else:
        read_fsdp(facts)
    if facts.settings.text(*TUNERS) is None:
        facts.values["adapter"] = LORA
    if facts.get("adapter") == LORA:
        facts.assume("adapter_rank", 8, "as ms-swift assumes")
    mbs, devices = facts.get("mbs", 1), world(facts).devices
    facts.assume("mbs", 1, "as ms-swift assumes")
    if facts.get("accumulation") is None and devices is not None:
        replicas = max(1, devices // facts.get("cp", 1))
        facts.assume("accumulation", -(-BATCH // (mbs * replicas)), f"for {BATCH} sequences, as ms-swift assumes")


LAUNCHER = read_launcher("ms-swift", syntax=arguments, adjust=adjust)
