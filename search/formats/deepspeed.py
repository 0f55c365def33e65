"""DeepSpeed 0.19: a JSON configuration and the launcher's command.

Source: ``deepspeed/runtime/config.py``, ``runtime/zero/config.py``, ``runtime/tensor_parallel/config.py`` and
``module_inject/auto_ep_config.py`` of 0.19.8. Pipelines are code (``PipelineModule``): the configuration has the number
of stages and the division of layers, and the launch script states that the program must build them.
"""

import json
from typing import Any

from forerun.search.formats.contract import Files, Launch, Limit
from forerun.search.formats.facts import format_of, world
from forerun.search.formats.keys import REST, LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.launchers import scripts
from forerun.search.formats.limits import (
    COMMON,
    NO_SELECTIVE,
    fixed,
    folded,
    is_mixture,
    when,
)
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.program_arguments import (
    CHECKPOINTING,
    OWN_PROGRAM,
    PACKED,
    PROGRAM,
    document_and_program,
    program_facts,
)
from forerun.search.formats.software import flags_of
from forerun.search.formats.writing import nested, settings_of
from forerun.spaces.strategies import Recompute, Split

NAME, VERSION = "deepspeed", "0.19"
MAIN = "ds_config.json"


HOSTFILE = [
    "# The launcher knows several nodes from a file alone. Without ssh their names are not looked at.",
    'seq -f "node%g slots=$GPUS_PER_NODE" "$NNODES" > "hostfile.$NODE_RANK"',
    'mv -f "hostfile.$NODE_RANK" hostfile',
]


def _uneven(launch: Launch) -> bool:
    s = launch.strategy
    return s.pp > 1 and (
        s.layers_per_stage is not None or s.split != Split.EVEN or launch.model.layer_count % s.pp != 0
    )


def write(launch: Launch) -> Files:
    """Return the JSON and a launch script."""
    s = launch.strategy
    unused = {"tp", "ep", "pp", "etp"} - {name for name in ("tp", "ep", "pp") if getattr(s, name) > 1}
    # Without an mpu its check of the three batch sizes counts every device as a replica, so only two are written.
    unused |= {"global_batch"} if s.tp > 1 else set()
    stated: dict[str, Any] = {"bf16.enabled": False, "fp16.enabled": False}
    stated |= settings_of(LAUNCHER.keys, launch, leave=unused - ({"etp"} if s.ep > 1 else set()))
    if s.zero:
        stated["zero_optimization.reduce_scatter"] = True
    if s.ep > 1:
        stated["expert_parallel.enabled"] = True
    if s.pp > 1:
        stated["pipeline.partition"] = "uniform"
    if s.recompute == Recompute.FULL:
        kept = ("partition_activations", "contiguous_memory_optimization")
        stated |= {f"activation_checkpointing.{name}": False for name in kept}
    data = nested(stated, LAUNCHER.run, flags_of(launch, NAME))
    command = ['deepspeed --num_nodes "$NNODES" --num_gpus "$GPUS_PER_NODE" --master_port "$MASTER_PORT"']
    before = _asked_of_program(launch)
    if launch.nodes > 1:
        before += HOSTFILE
        command += ['--hostfile hostfile --no_ssh --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR"']
    command += [PROGRAM, f"--deepspeed_config {MAIN}", f"--max_seq_length {launch.workload.seq_len}"]
    command += program_facts(launch) + ([f"{CHECKPOINTING} true"] if s.recompute == Recompute.FULL else [])
    text = json.dumps(data, indent=2) + "\n"
    return {MAIN: text, **scripts(launch, f"DeepSpeed {VERSION}", command, before=before)}


def _asked_of_program(launch: Launch) -> list[str]:
    """List the duties of the training program, as comments of its launch script."""
    s = launch.strategy
    asked = [f"{OWN_PROGRAM}, and to call deepspeed.initialize."]
    if s.pp > 1:
        asked.append(f"# It builds deepspeed.pipe.PipelineModule with num_stages={s.pp}, layers in equal numbers.")
    if s.recompute == Recompute.FULL:
        asked.append(f"# It recomputes layers ({CHECKPOINTING}): activation_checkpointing alone switches nothing on.")
    return asked


def adjust(facts: LaunchFacts) -> None:
    """Determine experts, recompute, partial sharding, and a micro-batch that depends on unknown replicas."""
    settings = facts.settings
    settings.text("pipeline.partition")
    if not settings.flag("expert_parallel.enabled"):
        facts.values.pop("ep", None)
        facts.values.pop("etp", None)
    if any(name.split(".")[0] == "activation_checkpointing" for name in settings.every()):
        facts.assume("recompute", Recompute.FULL, "by activation_checkpointing, which the program has to use")
    for part in ("optimizer", "param"):
        where = settings.text(f"zero_optimization.offload_{part}.device")
        if where == "nvme" or (where == "cpu" and part == "param"):
            facts.notes.append(f"offload of the {part} is not part of a strategy")
    near = settings.whole("zero_optimization.zero_hpz_partition_size") or 1
    if near > 1:
        facts.notes.append(
            f"zero_hpz_partition_size={near} keeps a second copy of parameters within groups; read as plain sharding"
        )
    size = settings.whole("zero_optimization.mics_shard_size", least=-1) or -1
    if size > 0 and facts.get("zero") == 3:
        facts.values |= {"shard": size, "replicate": REST}
    if facts.get("mbs") is None and facts.get("global_batch") is not None and not world(facts).stated:
        share = max(1, facts.get("global_batch") // facts.get("accumulation", 1))
        facts.assume("mbs", share, "train_batch_size over accumulation steps and replicas")


LAUNCHER = read_launcher(NAME, version=VERSION, syntax=document_and_program, adjust=adjust)
LIMITS = (
    *COMMON,
    when(
        lambda s: s.pp > 1 and (s.tp > 1 or s.ep > 1),
        "pp with tp or ep: PipelineModule builds layers, AutoTP and AutoEP change built ones",
        folds="pp",
    ),
    when(lambda s: s.pp > 1 and s.zero > 1, "pp with zero > 1: PipelineEngine runs with ZeRO-1 at most", zero=1),
    Limit(
        broken=_uneven,
        reason=lambda launch: "layers that stages do not divide: PipelineModule divides them by a rule of its own",
        fix=lambda launch: folded(launch, "pp"),
    ),
    *by_keys(LAUNCHER),
    NO_SELECTIVE,
    when(
        lambda s: s.ep == 1 and s.etp > 1,
        "etp > 1 with ep=1: AutoEP splits experts only when it also distributes them",
        etp=1,
    ),
    Limit(
        broken=lambda launch: is_mixture(launch.model) and launch.strategy.tp > 1 and launch.strategy.ep == 1,
        reason=lambda launch: f"tp={launch.strategy.tp} with experts and ep=1: AutoEP and AutoTP fold only when ep > 1",
        fix=lambda launch: folded(launch, "tp"),
    ),
    fixed(
        lambda launch: (
            launch.switches.get("activation-offload", "off") != "off" and launch.strategy.recompute != Recompute.FULL
        ),
        "activation-offload without full recompute: it moves checkpoints to the host, and nothing else",
        recompute=Recompute.FULL,
    ),
    Limit(
        broken=lambda launch: (
            launch.switches.get("optimizer-offload", "off") not in ("off", "on") and launch.strategy.zero < 3
        ),
        reason=lambda launch: "a part of the optimizer on the host needs ZeRO 3 (offload_optimizer.ratio)",
        fix=None,
    ),
)
FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write, adapters=True, packs=PACKED)
