"""Megatron-Bridge: recipes and performance presets in Python, one of several by name (``--entry``).

A recipe is a function that sets ``cfg.model.tensor_model_parallel_size``; a preset is a constant of
``WorkloadBaseConfig(...)`` or ``replace(...)`` (``scripts/performance/configs``), its precision is part of its name.
Source: ``megatron/bridge/recipes`` and ``scripts/performance`` of NVIDIA-NeMo/Megatron-Bridge, 0.3 to 0.6.
"""

import ast
import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import Format, Imported, LaunchFile
from forerun.search.formats.facts import read
from forerun.search.formats.megatron_bridge import LAUNCHER as SECTIONS
from forerun.search.formats.megatron_bridge import stated
from forerun.search.formats.python_text import CALLED, UNKNOWN, PythonReader, open_settings, parse_python, settings_of
from forerun.spaces.errors import RequestError, unknown

DEGREE = "tensor_model_parallel_size"
NAME, MOST = "megatron-bridge-recipe", 20
RENAMED = {
    "num_gpus": "trainer.devices",
    "micro_batch_size": "train.micro_batch_size",
    "global_batch_size": "train.global_batch_size",
    "use_megatron_fsdp": "ddp.use_megatron_fsdp",
}
"""Fields of a preset that the model does not have; ``sequence_parallel`` follows from tp."""
SHARDED = {"optimizer.use_distributed_optimizer": True}
COMMON: Mapping[str, Mapping[str, Any]] = {
    "_pretrain_common": {"train.micro_batch_size": 2, "train.global_batch_size": 32, **SHARDED},
    "_sft_common": {"train.micro_batch_size": 1, "train.global_batch_size": 128, **SHARDED},
    "_peft_common": {"train.micro_batch_size": 1, "train.global_batch_size": 128, **SHARDED},
    "distributed_fused_adam_with_cosine_annealing": SHARDED,
    "distributed_fused_adam_with_cosine_annealing_samples": SHARDED,
}
"""Initial settings of recipes (``recipes/common.py``) and of their optimizers (``recipes/utils``)."""
COMPUTED = "arguments or code, which is not run: give them defaults, or write the numbers"
_DEGREES = re.compile(r"\.(tensor|pipeline|context|expert)_((model|tensor)_)?parallel_size$")
_DECIDING = re.compile(r"parallel|recompute|batch_size|layout|seq_length")
PRECISIONS = {"nvfp4": "bf16_with_nvfp4_mixed", "fp8_mx": "bf16_with_mxfp8_mixed", "fp8": "bf16_with_fp8_mixed"}


def parse(source: LaunchFile) -> Imported:
    """Read one recipe or preset.

    Raises
    ------
    RequestError
        The file is not Python, has no recipe, or has several and no name was given.
    """
    tree = parse_python(source.text, source.name)
    reader = PythonReader(tree)
    named = _entries(tree, reader)
    if not named and re.search(rf"\.{DEGREE}\s*=[^=]", source.text):
        raise RequestError(f"{source.name} sets {DEGREE} from {COMPUTED}")
    if not named:
        raise RequestError(f"{source.name} has no recipe: no function or constant sets {DEGREE}")
    if source.entry is not None and source.entry not in named:
        raise unknown("recipe", source.entry, list(named))
    if source.entry is None and len(named) > 1:
        shown = ", ".join(list(named)[:MOST]) + (", ..." if len(named) > MOST else "")
        raise RequestError(f"{source.name} has {len(named)} configurations ({shown}); add --entry {next(iter(named))}")
    entry = source.entry or next(iter(named))
    imported = read(dataclasses.replace(SECTIONS, syntax=lambda _: stated(source, named[entry])), source)
    computed = [] if entry in reader.constants else open_settings(reader.function(entry))
    lost = [name for name in computed if _DECIDING.search(name)]
    if degrees := [name for name in lost if _DEGREES.search(name)]:
        raise RequestError(f"{entry} in {source.name} sets {', '.join(degrees)} from {COMPUTED}")
    notes = [f"{', '.join(lost[:4])}: computed by code that is not run, so left out"] if lost else []
    return dataclasses.replace(imported, format=NAME, notes=(f"read from {entry}", *notes, *imported.notes))


def _entries(tree: ast.Module, reader: PythonReader) -> dict[str, dict[str, Any]]:
    """Return the sections of every recipe and preset by name."""
    entries: dict[str, dict[str, Any]] = {}
    for name, value in reader.constants.items():
        preset = isinstance(value, dict) and value.get(CALLED) in ("replace", "WorkloadBaseConfig")
        if preset and not name.startswith("BASE_"):
            entries[name] = _preset(name, value)
    for name in reader.functions:
        returned = reader.function(name)
        base = next((sizes for common, sizes in COMMON.items() if _calls(reader.functions[name], common)), {})
        settings = {**base, **settings_of(returned)}
        if not name.startswith("_") and f"model.{DEGREE}" in settings:
            entries[name] = settings
    return entries


def _calls(function: ast.FunctionDef, name: str) -> bool:
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id == name for called in calls)


def _preset(name: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return the sections of a preset; missing fields have its class's defaults."""
    fields = {key: inner for key, inner in value.items() if key not in (CALLED, "0") and inner is not UNKNOWN}
    sections: dict[str, Any] = {"trainer.devices": 1, "train.micro_batch_size": 1, "train.global_batch_size": 1}
    for key, inner in fields.items():
        sections[RENAMED.get(key, f"model.{key}")] = inner
    sections["model.sequence_parallel"] = fields.get(DEGREE) not in (None, 1)
    sections["ddp.use_distributed_optimizer"] = True
    if fields.get("use_megatron_fsdp"):
        sections["ddp.data_parallel_sharding_strategy"] = "optim_grads_params"
    if fields.get("recompute_num_layers"):
        sections |= {"model.recompute_granularity": "full", "model.recompute_method": "block"}
    elif fields.get("recompute_modules"):
        sections["model.recompute_granularity"] = "selective"
    word = name.lower()
    sections["mixed_precision"] = next((recipe for mark, recipe in PRECISIONS.items() if mark in word), "bf16_mixed")
    return sections


def recognise(source: LaunchFile) -> bool:
    """Whether a Python file sets degrees by Megatron's names and is not a torchtitan program."""
    return source.suffix == ".py" and re.search(rf"\b{DEGREE}\b", source.text) is not None


FORMAT = Format(
    name=NAME,
    version=SECTIONS.version,
    title="Megatron-Bridge recipe",
    main="",
    limits=(),
    write=None,
    parse=parse,
    recognise=recognise,
    framework="nemo",
)
