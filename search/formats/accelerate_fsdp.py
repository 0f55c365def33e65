"""Hugging Face accelerate 1.15 with FSDP 2: a YAML file, and the script whose program gets the batch sizes.

Source: ``accelerate/parallelism_config.py`` and ``commands/launch.py`` of 1.15. Files for FSDP 1, plain replicas and
DeepSpeed through accelerate are read too.
"""

import dataclasses

from forerun.search.formats.accelerate_common import MIXED, VERSION, common, files
from forerun.search.formats.contract import Files, Launch, Limit
from forerun.search.formats.facts import format_of, world
from forerun.search.formats.keys import REST, LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.limits import (
    COMMON,
    SHARED_BY_WHOLE_REPLICAS,
    TP_ALONE,
    precisions,
    when,
)
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.program_arguments import CHECKPOINTING, PACKED, document_and_program, trainer_arguments
from forerun.search.formats.software import assumed
from forerun.search.formats.tables.trainer import read_deepspeed, read_fsdp
from forerun.search.formats.writing import nested, settings_of
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute

NAME, MAIN = "accelerate-fsdp", "accelerate-fsdp.yaml"


def _flat(launch: Launch) -> bool:
    """Whether the parameters of a unit are one buffer, which is FSDP 1."""
    return launch.strategy.zero >= 2 and assumed(launch, "fsdp").get("fsdp-parameters") == "flat"


HYBRID = ("HYBRID_SHARD", "4", "HYBRID_SHARD_ZERO2", "_HYBRID_SHARD_ZERO2", "5")
"""FSDP 1's strategies that shard within nodes and copy between them (``torch.distributed.fsdp.ShardingStrategy``)."""


def write(launch: Launch) -> Files:
    """Return the YAML of FSDP 2 (of plain replicas without sharding) and a launch script."""
    s = launch.strategy
    data = common(launch, "FSDP" if s.zero else "MULTI_GPU" if s.devices > 1 else "NO")
    if s.zero:
        wrapped = {**LAUNCHER.run, "fsdp_activation_checkpointing": s.recompute == Recompute.FULL}
        if _flat(launch):
            stage = "FULL_SHARD" if s.zero == 3 else "SHARD_GRAD_OP"
            flat = {"fsdp_sharding_strategy": stage, "fsdp_version": 1, "fsdp_use_orig_params": True}
            data["fsdp_config"] = wrapped | flat
        else:
            data["fsdp_config"] = wrapped | {"fsdp_reshard_after_forward": s.zero == 3}
            degrees = nested(settings_of(LAUNCHER.keys, launch, leave=("recompute", "devices", "precision")))
            data["parallelism_config"] = degrees["parallelism_config"]
    arguments = trainer_arguments(launch)
    if s.recompute == Recompute.FULL and not s.zero:
        arguments.append(f"{CHECKPOINTING} true")
    return files(launch, MAIN, data, arguments)


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding: by FSDP, by DeepSpeed, or none.

    Raises
    ------
    RequestError
        The file is of another distributed type.
    """
    settings = facts.settings
    kind = (settings.text("distributed_type") or "NO").upper()
    if kind not in ("FSDP", "MULTI_GPU", "NO", "DEEPSPEED"):
        raise RequestError(
            f"{facts.source.name}: distributed_type {kind} is none of FSDP, MULTI_GPU, NO, DEEPSPEED; "
            f"Megatron-LM's files are format accelerate-megatron"
        )
    for what in ("optimizer", "param"):
        if (settings.text(f"deepspeed_config.offload_{what}_device") or "none") != "none":
            facts.notes.append(f"offload of the {what} is not part of a strategy")
    if kind == "DEEPSPEED":
        facts.launcher = dataclasses.replace(facts.launcher, frameworks=("deepspeed",))
        read_deepspeed(facts, "deepspeed_config.deepspeed_config_file")
    elif kind == "FSDP":
        _within_nodes(facts)
        if not any(name.startswith("fsdp_config.") for name in settings.names()):
            facts.assume("zero", 3, "as FSDP assumes")
        read_fsdp(facts)
    else:
        facts.values["zero"] = 0


def _within_nodes(facts: LaunchFacts) -> None:
    """Determine FSDP 1's hybrid strategies, which copy states between nodes."""
    if (facts.settings.text("fsdp_config.fsdp_sharding_strategy") or "").upper() not in HYBRID:
        return
    machines, devices = facts.settings.whole("num_machines"), world(facts).devices
    if machines is not None and devices is not None and devices % machines == 0:
        facts.values |= {"replicate": machines, "shard": REST}


LAUNCHER = read_launcher(NAME, version=VERSION, syntax=document_and_program, adjust=adjust)
LIMITS = (
    *COMMON,
    Limit(
        broken=lambda launch: (
            _flat(launch) and (launch.strategy.tp * launch.strategy.cp > 1 or launch.strategy.shard > 0)
        ),
        reason=lambda launch: "fsdp-parameters=flat with tp, cp or partial sharding: FSDP 1 has no ParallelismConfig",
        fix=None,
    ),
    *by_keys(LAUNCHER, besides=("zero", "precision")),
    when(lambda s: s.zero == 1, "zero=1: FSDP shards gradients as well (zero=2)", zero=2),
    TP_ALONE,
    when(
        lambda s: s.zero == 0 and s.tp * s.cp > 1,
        "zero=0 with tp or cp: ParallelismConfig shards the replicas of such a model",
        zero=2,
    ),
    SHARED_BY_WHOLE_REPLICAS,
    precisions(tuple(MIXED), "it has bf16, fp16 and no mixed precision here"),
)
FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write, packs=PACKED)
