"""Keys of programs on transformers' ``Trainer``, and sharding by its ``deepspeed`` and ``fsdp`` settings.

Source: ``transformers/training_args.py`` 5.23 and ``torch.distributed.fsdp.ShardingStrategy``.
"""

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from forerun.search.formats.contract import Launch, LaunchFile
from forerun.search.formats.keys import YES, LaunchFacts
from forerun.search.formats.settings import flatten

FSDP_STAGES = {
    "FULL_SHARD": 3,
    "1": 3,
    "SHARD_GRAD_OP": 2,
    "2": 2,
    "NO_SHARD": 0,
    "3": 0,
    "HYBRID_SHARD": 3,
    "4": 3,
    "HYBRID_SHARD_ZERO2": 2,
    "_HYBRID_SHARD_ZERO2": 2,
    "5": 2,
}
"""FSDP 1's strategies as ZeRO stages."""


def read_deepspeed(facts: LaunchFacts, name: str) -> None:
    """Determine DeepSpeed's sharding from its configuration in the file, in a given file, or from its name.

    ``name``: the setting with the configuration or its path. The name of a published file implies the stage
    (``ds_z3_config.json``, ``zero2.json``), with a remark.
    """
    settings = facts.settings
    inline = settings.whole(f"{name}.zero_optimization.stage", least=0)
    path = settings.raw(name)
    if inline is not None:
        facts.values.setdefault("zero", inline)
        return
    if not isinstance(path, str) or not path or path.lower() in ("none", "null"):
        return
    stage, why = _given(facts.source, path), ""
    if stage is None:
        match = re.search(r"(?:z(?:ero)?[_-]?|stage[_-]?)+([0-3])", PurePath(path).name.lower())
        stage = int(match[1]) if match else None
        why = f"by the name {PurePath(path).name} (give that file, too, to be sure)"
    if stage is None:
        facts.assume("zero", 0, f"{path} has DeepSpeed's own configuration: give that file, too")
    elif why:
        facts.assume("zero", stage, why)
    else:
        facts.values.setdefault("zero", stage)
    if re.search(r"(?<!no[_-])offload", PurePath(path).name.lower()):
        facts.notes.append(f"{PurePath(path).name} offloads to the host, which is not part of a strategy")


def _given(source: LaunchFile, path: str) -> int | None:
    """Return the stage of a given DeepSpeed configuration, None without one."""
    for name, text in source.others.items():
        if PurePath(name).name == PurePath(path).name:
            stage = flatten(LaunchFile(name=name, text=text).top_level()).get("zero_optimization.stage", 0)
            return stage if isinstance(stage, int) and 0 <= stage <= 3 else None
    return None


def read_fsdp(facts: LaunchFacts) -> None:
    """Determine FSDP's sharding: by the name of a strategy (version 1) or ``reshard_after_forward`` (version 2)."""
    settings = facts.settings
    named = settings.raw("fsdp")
    words = [str(word) for word in named] if isinstance(named, list) else str(named or "").split()
    stated = {
        key: settings.raw(f"fsdp_config.fsdp_{key}", f"fsdp_config.{key}")
        for key in ("sharding_strategy", "reshard_after_forward", "offload_params", "version")
    }
    inside = [key for key in facts.settings.names() if key.startswith("fsdp_config.")]
    strategy = str(stated["sharding_strategy"] or next((word for word in words if "shard" in word), "")).upper()
    if stated["offload_params"] is True or "offload" in words:
        facts.notes.append("offload of parameters is not part of a strategy")
    if not words and not inside:
        facts.assume("zero", 0, "the file names neither DeepSpeed nor FSDP; accelerate's own configuration may")
        return
    reshard = stated["reshard_after_forward"]
    plain = str(reshard).upper() if isinstance(reshard, str) and str(reshard).lower() not in YES else strategy
    stage = FSDP_STAGES.get(plain, 3)
    if str(reshard).lower() == "false":
        stage = 2
    facts.values.setdefault("zero", stage)
    facts.stated.add("zero")
    if "HYBRID" in strategy and facts.get("replicate") is None:
        facts.notes.append("states are sharded within nodes (HYBRID_SHARD); read as sharded over all replicas")


def sharded_by_name(facts: LaunchFacts, words: Mapping[str, Any], name: str) -> None:
    """Decide ``zero`` from the word of a setting; an unknown word is a path."""
    value = facts.settings.text(name)
    if value is not None and value.lower() in words:
        facts.values.setdefault("zero", words[value.lower()])
    else:
        read_deepspeed(facts, name)


def fine_tunes(launch: Launch) -> bool:
    """Whether a launch is a fine-tuning: with adapters or packed documents."""
    return bool(launch.tuning.rank) or launch.packed
