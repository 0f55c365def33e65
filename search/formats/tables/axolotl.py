"""axolotl 0.19: one YAML file.

Source: ``axolotl/utils/schemas`` and ``_get_parallel_config_kwargs`` of ``axolotl/utils/distributed.py``, which shards
by FSDP over devices / (tp * cp * ep), in groups of ``dp_shard_size`` if stated; the groups are copies.
"""

from typing import Any

from forerun.search.formats.adapters import hub_modules
from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import REST, LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.launchers import TORCHRUN, harmless, scripts
from forerun.search.formats.limits import COMMON, SHARED_BY_WHOLE_REPLICAS, TP_ALONE, when
from forerun.search.formats.limits_of_keys import by_keys
from forerun.search.formats.limits_of_models import decoders_only
from forerun.search.formats.syntax import document
from forerun.search.formats.tables.limits_of import TRAINER, no_zero
from forerun.search.formats.tables.trainer import fine_tunes, read_deepspeed, read_fsdp
from forerun.search.formats.writing import settings_of
from forerun.search.formats.yaml_text import dump_yaml

MAIN = "axolotl.yaml"
C4 = {"path": "allenai/c4", "name": "en", "split": "train", "type": "completion"}
ALPACA = {"path": "tatsu-lab/alpaca", "split": "train", "type": "alpaca"}

FSDP = {
    "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "state_dict_type": "SHARDED_STATE_DICT",
    "offload_params": False,
}


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding; expert ranks are replicas."""
    read_deepspeed(facts, "deepspeed")
    read_fsdp(facts)
    if facts.get("shard") is not None and facts.get("replicate") is None:
        facts.values["replicate"] = REST
    elif facts.get("replicate") is not None and facts.get("shard") is None:
        facts.values["shard"] = REST
    if facts.get("ep", 1) > 1 and facts.get("shard") is not None:
        facts.values["dp"] = facts.get("ep")


LAUNCHER = read_launcher("axolotl", syntax=document, adjust=adjust)
LIMITS = (
    *COMMON,
    *by_keys(LAUNCHER, **TRAINER),
    decoders_only("axolotl", hybrids=True),
    no_zero(1, "with FSDP gradients are sharded, too (zero=2); zero=1 is written for DeepSpeed, in LLaMA-Factory", 2),
    when(
        lambda s: s.zero == 0 and s.dp * s.cp > 1 and s.tp * s.cp > 1,
        "zero=0 with tp or cp: its device mesh shards the replicas of such a model",
        zero=2,
    ),
    TP_ALONE,
    when(
        lambda s: s.cp > 1 and s.mbs > 1,
        "mbs > 1 with cp: its ring attention takes one packed sequence at a time",
        mbs=1,
    ),
    SHARED_BY_WHOLE_REPLICAS,
)


def write(launch: Launch) -> Files:
    """Return the YAML, with FSDP 2 for sharded states, and the script."""
    s = launch.strategy
    data: dict[str, Any] = {
        "base_model": harmless(launch.model.name),
        "datasets": [ALPACA if fine_tunes(launch) else C4],
        **LAUNCHER.run,
        **settings_of(LAUNCHER.keys, launch),
    }
    if launch.tuning.rank:
        data |= {"lora_alpha": 2 * launch.tuning.rank, "lora_target_modules": hub_modules(launch)}
    if s.zero:
        data |= {"fsdp_version": 2, "fsdp_config": FSDP | {"reshard_after_forward": s.zero == 3}}
    title = f"axolotl {LAUNCHER.version}"
    remarks = ["base_model: a folder or a name on the hub"]
    if not launch.packed:
        remarks.append("documents do not attend to each other: with short ones a step takes less than predicted")
    text = dump_yaml(data, f"{launch.name}: {title}, {s}", *remarks)
    return {MAIN: text, **scripts(launch, title, [*TORCHRUN, f"-m axolotl.cli.train {MAIN}"])}


FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write)
