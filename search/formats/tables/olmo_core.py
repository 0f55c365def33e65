"""OLMo-core 3: a training script, overrides on its command line, or the ``config.json`` that a run saves.

Source: ``TransformerTrainModuleConfig`` and the configurations in it, ``olmo_core/internal/experiment.py`` of 3.0.0.
Batches count tokens. FSDP gathers parameters again in the backward pass unless there is a pipeline.
"""

import re
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.keys import REST, Launcher, LaunchFacts, LaunchKey, switched_on
from forerun.search.formats.python_text import PythonReader, keywords, parse_python
from forerun.search.formats.syntax import document, is_yaml, overrides
from forerun.spaces.strategies import Recompute, Schedule

SECTIONS = ("train_module", "trainer", "data_loader", "dataset", "launch", "model", "config", "experiment")
HARMLESS = re.compile(r"(?!.*(degree|parallel|microbatch)).*")
"""A script has keyword arguments of everything; those that no key has are its own."""
SCHEDULES = {
    "1f1b": Schedule.ONE_F_ONE_B,
    "single_1f1b": Schedule.ONE_F_ONE_B,
    "custom_1f1b": Schedule.ONE_F_ONE_B,
    "gpipe": Schedule.GPIPE,
    "zbv_zero_bubble": Schedule.ZB_V,
    "zbvzerobubble": Schedule.ZB_V,
    "*": Schedule.INTERLEAVED,
}
MODES = {
    "full": Recompute.FULL,
    "selected_blocks": Recompute.FULL,
    "selected_modules": Recompute.SELECTIVE,
    "selected_ops": Recompute.SELECTIVE,
    "budget": Recompute.SELECTIVE,
}


def read(source: LaunchFile) -> Mapping[str, Any]:
    """Return the settings of a script, of its command line, or of a saved configuration, sections left off."""
    found: dict[str, Any] = {}
    if source.suffix == ".py":
        tree = parse_python(source.text, source.name)
        found = keywords(tree, PythonReader(tree))
        sizes = {name: found.get(name.upper()) for name in ("sequence_length", "global_batch_size")}
        found |= {name: value for name, value in sizes.items() if value is not None and name not in found}
    elif is_yaml(source) or source.suffix == ".json":
        found = dict(document(source))
    for name, text in source.scripts.items():
        found |= overrides(LaunchFile(name=name, text=text, given=source.given))
    return {_plain(key): value for key, value in found.items()}


def _plain(key: str) -> str:
    section, _, name = key.partition(".")
    return _plain(name) if section.removesuffix("_config") in SECTIONS and name else key


def adjust(facts: LaunchFacts) -> None:
    """Settle what is sharded over which replicas, and what the modes of recompute are read as."""
    settings = facts.settings
    kind = settings.one_of("dp_config.name", ("fsdp", "hsdp", "ddp"))
    if kind in ("fsdp", "hsdp"):
        facts.values["zero"] = 2 if facts.get("pp", 1) > 1 else 3
        facts.stated.add("zero")
    if kind == "hsdp" and facts.get("nodes", 1) > 1 and not facts.stated & {"shard", "replicate"}:
        facts.values |= {"replicate": facts.get("nodes"), "shard": REST}
    elif kind == "hsdp" and facts.get("shard") is not None:
        facts.values.setdefault("replicate", REST)
    elif kind == "hsdp" and facts.get("replicate") is None:
        facts.notes.append("hsdp shards within nodes where no degree is stated; read as sharded over all replicas")
    elif kind == "fsdp":
        facts.values.pop("replicate", None)
    if facts.get("replicate", 1) > 1 and facts.get("shard") is None:
        facts.values["shard"] = REST
    facts.values["sp"] = facts.get("tp", 1) > 1
    points = settings.raw("pp_config.split_points")
    if isinstance(points, list) and (len(points) + 1) % facts.get("pp", 1) == 0:
        facts.values["vpp"] = (len(points) + 1) // facts.get("pp", 1)
    mode = settings.text("ac_config.mode", "ac_config.0")
    if mode == "selected_blocks":
        facts.notes.append("recompute of selected blocks is read as recompute=full: of all layers")
    elif mode in MODES and mode != "full":
        facts.notes.append(f"recompute by {mode} is read as recompute=selective")


LAUNCHER = Launcher(
    name="olmo-core",
    version="3",
    title="OLMo-core",
    keys=(
        LaunchKey(names=("global_batch_size",), decides="global_tokens"),
        LaunchKey(names=("rank_microbatch_size",), decides="mbs_tokens"),
        LaunchKey(names=("max_sequence_length", "sequence_length"), decides="seq_len"),
        LaunchKey(names=("dp_config.num_replicas",), decides="replicate"),
        LaunchKey(names=("dp_config.shard_degree",), decides="shard"),
        LaunchKey(names=("tp_config.degree",), decides="tp"),
        LaunchKey(names=("cp_config.degree", "cp_config.0"), decides="cp"),
        LaunchKey(names=("pp_config.degree",), decides="pp"),
        LaunchKey(names=("pp_config.schedule",), decides="schedule", words=SCHEDULES),
        LaunchKey(names=("ep_config.degree",), decides="ep"),
        LaunchKey(
            names=("ac_config.mode", "ac_config.0"), decides="recompute", meaning="what is recomputed", words=MODES
        ),
        LaunchKey(
            names=("float8_config.enabled",), decides="precision", meaning="8-bit products", words=switched_on("fp8")
        ),
        LaunchKey(
            names=("dp_config.param_dtype", "autocast_precision"),
            decides="precision",
            words={"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "none": None},
        ),
        LaunchKey(names=("num_nodes",), decides="nodes"),
        LaunchKey(names=("num_gpus",), decides="devices_per_node"),
    ),
    syntax=read,
    marks=lambda source: "olmo_core" in source.text or "OLMo-core" in source.text,
    harmless=lambda name: HARMLESS.fullmatch(name) is not None,
    adjust=adjust,
    assumed={"seq_len": 4096},
)
