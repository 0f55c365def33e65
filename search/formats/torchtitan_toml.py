"""torchtitan up to 0.2.2: a TOML job configuration.

Source: ``torchtitan/config/job_config.py`` and ``torchtitan/distributed/pipeline_parallel.py`` of 0.2.2.
"""

import json
from typing import Any

from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.facts import format_of
from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.launchers import TORCHRUN, comment, scripts
from forerun.search.formats.limits import MX_IS_A_PRECISION, precisions, when
from forerun.search.formats.settings import flatten
from forerun.search.formats.software import flags_of
from forerun.search.formats.syntax import dotted_arguments
from forerun.search.formats.titan_keys import (
    FLAVORS,
    PACKED,
    TITAN_LIMITS,
    VARIABLE,
    adjust_titan,
    parallelism,
    parts_text,
)
from forerun.search.formats.writing import nested
from forerun.spaces.documents import read_toml
from forerun.spaces.strategies import Recompute

NAME, VERSION = "torchtitan-toml", "0.2.2"
MAIN = "torchtitan.toml"

CONVERTERS = {"fp8": "quantize.linear.float8", "mxfp8": "quantize.linear.mx"}
"""``model.converters`` by precision."""
MOVED = {
    "compile.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "model_registry.moe_comm_backend": "parallelism.expert_parallel_comm_backend",
}
"""Settings of 0.2.2 by their names in later versions."""

LIMITS = (
    MX_IS_A_PRECISION,
    *TITAN_LIMITS,
    when(
        lambda s: s.tp > 1 and not s.sp,
        "tp without sp: tensor parallel includes sequence parallel",
        sp=True,
    ),
    when(lambda s: s.etp not in (1, s.tp), "etp={s.etp}: torchtitan has etp=1 and etp=tp={s.tp}", etp=1),
    precisions(("bf16", "fp32", *CONVERTERS), "torchtitan 0.2.2 trains in bfloat16, float32, float8 or MXFP8"),
)


def write(launch: Launch) -> Files:
    """Return the TOML, and launch scripts that name it."""
    s, workload = launch.strategy, launch.workload
    name, flavor = FLAVORS.get(launch.model.name, (launch.model.name, launch.model.name))
    flavor += VARIABLE if launch.packed else ""
    about = {"job.description": f"{launch.name}: {s}", "model.name": name, "model.flavor": flavor}
    sections = nested(
        {**about, "training.steps": launch.job.steps},
        parallelism(LAUNCHER, launch, head="output"),
        {MOVED.get(name, name): value for name, value in flags_of(launch, "torchtitan").items()},
    )
    sections["training"].setdefault("mixed_precision_param", "bfloat16")
    if s.recompute == Recompute.SELECTIVE:
        sections["activation_checkpoint"]["selective_ac_option"] = "op"
    if workload.precision in CONVERTERS:
        sections["model"]["converters"] = [CONVERTERS[workload.precision]]
    remark = ""
    if launch.packed and (name, flavor) != ("llama3", "8B_varlen"):
        attention = 'attn_type="varlen" and attn_mask_type="block_causal"'
        remark = f"# Register {comment(flavor)} as a flavor, with {attention}: torchtitan does not have it.\n"
    elif launch.model.name not in FLAVORS:
        remark = f"# Register {comment(launch.model.name)} as a flavor: torchtitan does not have it.\n"
    text = f"# torchtitan {VERSION}: {s} ({s.devices} GPUs), written by forerun\n{remark}"
    text += _tables(sections)
    command = [*TORCHRUN, f"-m torchtitan.train --job.config_file {MAIN}"]
    return {MAIN: text, **scripts(launch, f"torchtitan {VERSION}", command)}


def _tables(values: dict[str, Any], name: str = "") -> str:
    """Return settings as TOML's table ``name``, and nested ones as separate tables."""
    lines = [f"{key} = {_toml(value)}\n" for key, value in values.items() if not isinstance(value, dict)]
    inner = [
        _tables(value, f"{name}.{key}" if name else key) for key, value in values.items() if isinstance(value, dict)
    ]
    return "".join((*([f"\n[{name}]\n", *lines] if lines else ()), *inner))


def _toml(value: Any) -> str:
    """Return a value as TOML; the escapes of a JSON text are those of a basic string (https://toml.io/en/v1.0.0)."""
    if isinstance(value, list):
        return parts_text(value) if value and isinstance(value[0], list) else json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value.encode("utf-8", "replace").decode(), ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)


def adjust(facts: LaunchFacts) -> None:
    """Determine stages and batches, 8-bit converters, and recomputed layers."""
    adjust_titan(facts)
    converters = str(facts.settings.raw("model.converters"))
    precision = "mxfp8" if "mx" in converters else "fp8" if "float8" in converters else None
    if precision is not None:
        facts.values["precision"] = precision
    stated = [facts.settings.raw(f"{section}float8.recipe_name") for section in ("quantize.linear.", "")]
    if precision == "fp8" and stated == [None, None]:
        facts.switches["fp8-recipe"] = "current"
    facts.values["sp"] = True  # tensor parallel includes it
    mode = str(facts.settings.raw("activation_checkpoint.mode") or "selective").lower()
    option = facts.settings.text("activation_checkpoint.selective_ac_option") or "2"
    if mode == "memory_budget":
        facts.notes.append("recompute by a memory budget is read as recompute=selective")
    elif mode == "selective" and option != "op":
        facts.notes.append(f"recompute of every layer number {option} is read as recompute=selective")


LAUNCHER = read_launcher(
    NAME,
    version=VERSION,
    syntax=lambda source: flatten(read_toml(source.text, source.name)) | dict(dotted_arguments(source)),
    adjust=adjust,
)
FORMAT = format_of(LAUNCHER, main=MAIN, limits=LIMITS, write=write, packs=PACKED)
