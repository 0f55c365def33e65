"""MaxText: a YAML file over ``base.yml``, and ``name=value`` words on the command line of ``MaxText.train``.

Source: ``configs/base.yml``, ``pyconfig.py`` of AI-Hypercomputer/maxtext. The mesh within a slice (``ici_*``) times
that over slices (``dcn_*``) are all devices; one axis of each may be -1, the remaining devices (``ici_fsdp`` and
``dcn_data`` by default). ``per_device_batch_size`` times all devices is the batch of a microbatch, for any axes.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.facts import world
from forerun.search.formats.keys import REST, LaunchFacts, LaunchKey, decide
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.syntax import document, is_yaml, overrides
from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Schedule

NAMES = package_yaml("forerun.search.formats", "data", "maxtext.yaml")
"""MaxText's names of models, hardware and policies, and degrees of the axes of its mesh."""
AXES: Mapping[str, str] = NAMES["axes"]
MESHES = ("ici", "dcn")
"""Devices within a slice, and slices."""
CHIPS = {"v4": 2, "v5p": 2, "v3": 2, "v2": 2}
"""TPU generations whose slices count TensorCores, with cores per chip; other slices count chips."""
LARGEST = 1_000_000
"""Most sequences of a device."""


def read(source: LaunchFile) -> Mapping[str, Any]:
    """Return the file's settings, overridden by the command line."""
    settings = dict(document(source)) if is_yaml(source) else {}
    for name in source.scripts:
        settings |= overrides(source, name)
    return settings


def adjust(facts: LaunchFacts) -> None:
    """Determine the axes of remaining devices, and the batch, which is per device.

    Raises
    ------
    RequestError
        Two axes of a mesh take the remaining devices, or a batch has no whole number of sequences.
    """
    settings, name = facts.settings, facts.source.name
    for mesh in MESHES:
        open_axes = [axis for axis in AXES if settings.raw(f"{mesh}_{axis}_parallelism") in (REST, "-1")]
        if len(open_axes) > 1:
            raise RequestError(f"{name}: only one {mesh} axis may be -1, but {', '.join(open_axes)} are")
        if set(open_axes) & {"tensor", "context", "pipeline", "expert"}:
            _whole_axes(facts, mesh, open_axes[0])
    for degree in ("tp", "cp", "pp", "ep"):
        facts.values.setdefault(degree, 1)
    topology = settings.text("compile_topology")
    if topology and (match := re.fullmatch(r"(\w+?)-(\d+)", topology)):
        chips = int(match[2]) // CHIPS.get(match[1], 1)
        facts.values["devices"] = chips * (settings.whole("compile_topology_num_slices", least=-1) or 1)
    facts.values["sp"] = any(
        (settings.whole(f"{mesh}_tensor_sequence_parallelism", least=-1) or 1) > 1 for mesh in MESHES
    )
    if facts.get("pp") > 1 and facts.get("vpp") in (None, REST):
        _repeats(facts)
    if facts.get("pp") > 1 and facts.get("vpp", 1) == 1:
        facts.values["schedule"] = Schedule.GPIPE
    policy, inputs = settings.text("remat_policy"), settings.text("decoder_layer_input")
    stated = {"remat_policy": policy, "decoder_layer_input": inputs}
    if any(set(stated.items()) >= set(offloading.items()) for offloading in NAMES["offloaded"].values()):
        facts.switches["activation-offload"] = "on"
    settings_of_shards(facts)
    batch(facts)


def _repeats(facts: LaunchFacts) -> None:
    """Compute the rounds of a pipeline from the layers of the model and of a stage."""
    name, settings = facts.settings.text("model_name"), facts.settings
    layers = settings.whole("base_num_decoder_layers")
    known = next((ours for ours, theirs in NAMES["models"].items() if theirs == name), None)
    layers = load_model(known).layer_count if layers is None and known else layers
    each = settings.whole("num_layers_per_pipeline_stage") or 1
    repeats, rest = divmod(layers or facts.get("pp") * each, facts.get("pp") * each)
    if layers is None or rest or not repeats:
        facts.notes.append("num_pipeline_repeats is not stated, and follows from the layers of the model: read as 1")
    facts.values["vpp"] = 1 if rest else max(1, repeats)


def settings_of_shards(facts: LaunchFacts) -> None:
    """Determine copies and shards: FSDP takes the remaining devices unless a number is stated."""
    facts.values.setdefault("shard", REST)
    if facts.get("replicate") == REST:
        facts.values["replicate"] = 1  # slices, one unless the devices need more
    if facts.get("ep", 1) > 1:
        facts.values["dp"] = facts.get("ep")
    spread = [facts.get(degree, 1) for degree in ("shard", "cp", "ep")]
    facts.values["zero"] = 0 if spread == [1, 1, 1] else 3
    facts.stated.add("shard")


def _whole_axes(facts: LaunchFacts, mesh: str, axis: str) -> None:
    """Compute the axis of the remaining devices."""
    devices = world(facts).devices
    if devices is None:
        raise RequestError(f"{facts.source.name}: {mesh}_{axis}_parallelism is -1, all that is left: give --gpus")
    others = 1
    for other in AXES:
        value = facts.settings.whole(f"{mesh}_{other}_parallelism", least=-1)
        others *= 1 if value in (None, REST) else value or 1
    facts.values[AXES[axis]] = max(1, devices // others)
    if facts.settings.raw("ici_fsdp_parallelism") is None:
        facts.values["shard"] = 1


def batch(facts: LaunchFacts) -> None:
    """Determine micro-batch and global batch from ``per_device_batch_size``, which may be a fraction.

    Raises
    ------
    RequestError
        The value is not a number, or microbatches do not have a whole number of sequences.
    """
    settings, name = facts.settings, facts.source.name
    each = settings.raw("per_device_batch_size")
    steps = settings.whole("gradient_accumulation_steps") or 1
    micro = settings.whole("num_pipeline_microbatches", least=-1)
    try:
        each = 12.0 if each is None else float(each)
    except (TypeError, ValueError):
        each = math.nan
    if not 0 < each <= LARGEST:
        raise RequestError(f"{name}: per_device_batch_size must be a number above 0 and at most {LARGEST:,}")
    group = facts.get("tp") * facts.get("cp") * facts.get("pp")
    local = each * group  # sequences of a replica; thirds have no exact decimal
    local = float(round(local)) if abs(local - round(local)) < 1e-6 * local else local
    passes = facts.get("pp") if micro in (None, REST) and facts.get("pp") > 1 else max(1, micro or 1)
    passes = passes if facts.get("pp") > 1 else 1
    if local < 1 or local != int(local) or int(local) % passes:
        raise RequestError(
            f"{name}: a replica has per_device_batch_size * tensor * context * pipeline = {each:g}*{group} sequences, "
            f"which must be whole and divisible by {passes} microbatches of the pipeline"
        )
    facts.values |= {"mbs": int(local) // passes, "accumulation": steps * passes}
    facts.stated.add("mbs")


def _axis_keys() -> tuple[LaunchKey, ...]:
    where = {"ici": "within a slice", "dcn": "over slices"}
    return tuple(
        decide(
            degree,
            f"{mesh}_{axis}_parallelism",
            meaning=f"devices along {axis} {where[mesh]}",
            unit="devices",
            least=-1,
        )
        for axis, degree in AXES.items()
        for mesh in where
    )


LAUNCHER = read_launcher(
    "maxtext",
    first=_axis_keys(),
    syntax=read,
    adjust=adjust,
)
