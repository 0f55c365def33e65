"""Levanter: one YAML file for ``levanter.main.train_lm``.

Source: ``levanter/trainer.py`` (``TrainerConfig``): devices are a mesh of data by model; parameters are sharded over
data along ``fsdp_axis`` (on by default). Models recompute their layers by default.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.keys import REST, LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.syntax import document


def read(source: LaunchFile) -> Mapping[str, Any]:
    """Return the settings; included files (usually data) are ignored."""
    return document(dataclasses.replace(source, text=re.sub(r":\s*!include\s+(\S+)", r": \1", source.text)))


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding and the axes of older files."""
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


LAUNCHER = read_launcher("levanter", syntax=read, adjust=adjust)
