"""Levanter: one YAML file for ``levanter.main.train_lm``.

Source: ``levanter/trainer.py`` (``TrainerConfig``): devices are a mesh of data by model; parameters are sharded
over data along ``fsdp_axis`` (on by default). Models recompute their layers unless told not to.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.harmless import harmless_by
from forerun.search.formats.keys import RECOMPUTED, REST, Launcher, LaunchFacts, decide
from forerun.search.formats.syntax import document, is_yaml
from forerun.spaces.strategies import Recompute


def read(source: LaunchFile) -> Mapping[str, Any]:
    """Return the settings; files that are included (data, as a rule) are left out."""
    return document(dataclasses.replace(source, text=re.sub(r":\s*!include\s+(\S+)", r": \1", source.text)))


def adjust(facts: LaunchFacts) -> None:
    """Settle sharding and the axes that older files name one by one."""
    settings = facts.settings
    axis = settings.raw("trainer.fsdp_axis")
    old = settings.raw("trainer.parameter_axis_resources.embed")
    stated = "trainer.fsdp_axis" in settings.every()
    facts.values["zero"] = 0 if (stated and axis is None and old is None) else 3
    copies = facts.get("replicate", 1)
    if copies > 1:
        facts.values["shard"] = REST
    if facts.get("mbs") == REST:
        facts.values["mbs"] = None
    policy = settings.text("trainer.mp")
    if policy is not None:
        compute = next((part.split("=")[-1] for part in policy.split(",") if part.strip().startswith("c=")), policy)
        known = {"bf16": "bf16", "bfloat16": "bf16", "f16": "fp16", "float16": "fp16", "half": "fp16"}
        facts.values["precision"] = known.get(compute.strip(), "fp32")


LAUNCHER = Launcher(
    name="levanter",
    version="1",
    title="Levanter",
    keys=(
        decide("global_batch", "trainer.train_batch_size"),
        decide("mbs", "trainer.per_device_parallelism", meaning="sequences of a replica at a time; -1: all", least=-1),
        decide("tp", "trainer.model_axis_size", "trainer.mesh.axes.model"),
        decide("replicate", "trainer.replica_ici_axis_size", meaning="copies within a slice"),
        decide("replicate", "trainer.replica_dcn_axis_size", meaning="copies over slices"),
        decide("seq_len", "train_seq_len", "model.seq_len", "model.max_seq_len"),
        decide("recompute", "model.gradient_checkpointing", meaning="layers recomputed", words=RECOMPUTED),
        decide("model.layers", "model.num_layers"),
        decide("model.hidden", "model.hidden_dim"),
        decide("model.heads", "model.num_heads"),
        decide("model.kv_heads", "model.num_kv_heads"),
    ),
    syntax=read,
    marks=lambda source: is_yaml(source) and _marked(source),
    harmless=harmless_by("levanter"),
    adjust=adjust,
    assumed={"recompute": Recompute.FULL, "global_batch": 512},
)


def _marked(source: LaunchFile) -> bool:
    return (
        re.search(r"^trainer\s*:", source.text, re.MULTILINE) is not None
        and re.search(
            r"^[ \t]+(mp|train_batch_size|per_device_parallelism|num_train_steps)\s*:", source.text, re.MULTILINE
        )
        is not None
    )
