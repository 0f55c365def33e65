"""Facts of one catalogue entry, or of a file, as plain data; a cluster as a file to edit."""

import dataclasses
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import yaml

from forerun.spaces.clusters import (
    TOPOLOGY_ENDINGS,
    Cluster,
    cluster_document,
    cluster_names,
    device_names,
    load_cluster,
    load_device,
    resolve_cluster,
)
from forerun.spaces.documents import read_document
from forerun.spaces.errors import unknown
from forerun.spaces.escaping import shown
from forerun.spaces.frameworks import (
    FrameworkProfile,
    all_switches,
    framework_names,
    load_framework,
    resolve_framework,
)
from forerun.spaces.frameworks.switch_words import flag_words
from forerun.spaces.models import Model, active_parameters, model_names, parameter_count, resolve_model
from forerun.spaces.models.hub import is_hub_name
from forerun.spaces.models.mixers.attention import Attention
from forerun.spaces.opgraph import GraphModel, Operator, graph_model_names
from forerun.spaces.opgraph.profile import graph_profile_names, load_graph_profile
from forerun.spaces.opgraph.resolve import names_graph_model, resolve_graph_model
from forerun.spaces.units import format_rate, format_seconds

HEADER = "# cluster: save this as mine.yaml, edit it, and pass it as --cluster mine.yaml\n"


def cluster_file(name: str) -> str:
    """Write the cluster that ``name`` means (a catalogue name, a file or a topology) as a YAML document.

    Raises
    ------
    RequestError
        If there is no such cluster or its file is wrong.
    """
    cluster = resolve_cluster(name, groups=True)
    keys = yaml.safe_dump(
        cluster_document(name), sort_keys=False, allow_unicode=True, width=100, default_flow_style=None
    )
    return HEADER + keys + "".join(f"# {line}\n" for line in _consequences(cluster))


def _consequences(cluster: Cluster) -> Iterator[str]:
    """Yield the links of every level in units, and their assumptions."""
    if not cluster.groups:
        yield "links of one device, one direction:"
    for level in cluster.levels if not cluster.groups else ():
        rate, latency = format_rate(level.bytes_per_s), format_seconds(level.latency_s)
        yield f"  {level.name}: {level.kind}, {level.size:,} devices, {rate}, {latency}"
    if cluster.defaults:
        yield "assumed, because no key says otherwise:"
    for default in cluster.defaults:
        yield f"  {shown(default)}"


def describe(name: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of a catalogue entry or file, and all its facts as plain data.

    Raises:
        RequestError: nothing has this name; the text names the nearest entries of all kinds.
    """
    if name.partition("@")[0] in framework_names():
        return "framework", framework_facts(load_framework(name))
    if name in graph_profile_names():
        return "framework", plain(load_graph_profile(name))
    if name in cluster_names():
        return "cluster", _cluster_facts(load_cluster(name))
    if name in device_names():
        return "device", plain(load_device(name))
    if names_graph_model(name):
        return "model", graph_facts(resolve_graph_model(name)[0])
    if name.lower().replace("_", "-") in model_names() or Path(name).is_dir():
        return "model", _model_facts(resolve_model(name).model)
    if Path(name).suffix.lower() in (".yaml", ".yml", ".json"):
        return _describe_file(name)
    if Path(name).suffix.lower() in TOPOLOGY_ENDINGS:
        return "cluster", _cluster_facts(resolve_cluster(name))
    if is_hub_name(name):
        return "model", _model_facts(resolve_model(name).model)
    raise unknown(
        "entry", name, {*framework_names(), *cluster_names(), *device_names(), *model_names(), *graph_model_names()}
    )


def _describe_file(name: str) -> tuple[str, dict[str, Any]]:
    """Return a file as a cluster if it names a device, a topology or groups, else as a model."""
    data = read_document(Path(name), infinite=True).data
    if isinstance(data, dict) and "like" in data:
        return "framework", framework_facts(resolve_framework(name))
    if isinstance(data, dict) and (data.keys() & {"device", "topology", "groups"}):
        return "cluster", _cluster_facts(resolve_cluster(name, groups=True))
    return "model", _model_facts(resolve_model(name).model)


def plain(value: Any) -> Any:
    """Return a value of ``spaces`` as mappings, lists, texts and numbers; fields without a value are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {name: plain(item) for name, item in fields.items() if item is not None}
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def framework_facts(profile: FrameworkProfile) -> dict[str, Any]:
    """Return a framework's switches (setting, choices, flags) and facts."""
    facts: dict[str, Any] = plain(profile)
    switches = {}
    for name, setting in profile.switches:
        switch = all_switches()[name]
        support = switch.support(profile)
        choices = [*switch.values, *(["share (a number between 0 and 1)"] if switch.share else [])]
        entry: dict[str, Any] = {"setting": setting, "what": switch.title, "choices": choices}
        if support is not None:
            flags = {choice: " ".join(flag_words(flag_values)) for choice, flag_values in support.flags.items()}
            entry |= {"since": support.since} if support.since else {}
            entry |= {"later": dict(support.later)} if support.later else {}
            entry |= {"without flags": support.unset}
            entry |= {"flags": flags} if flags else {}
        needed = {choice: switch.hardware_of(profile, choice).needed for choice in switch.values}
        entry |= {"devices": named} if (named := {choice: text for choice, text in needed.items() if text}) else {}
        switches[name] = entry | {"evidence": switch.evidence}
    head = {name: facts.pop(name) for name in ("name", "title", "source", "version", "lineage")}
    head |= {name: facts.pop(name) for name in ("vendors", "architectures")}
    facts.pop("switches")
    return {**head, "switches": switches, **facts}


def _model_facts(model: Model) -> dict[str, Any]:
    counted = {"parameters": parameter_count(model), "active_parameters": active_parameters(model)}
    if model.mtp_layers:
        counted["mtp_parameters"] = parameter_count(model) - parameter_count(model, mtp=False)
    facts: dict[str, Any] = plain(model)
    for layer, described in zip(model.layers, facts["layers"], strict=True):
        if isinstance(layer.mixer, Attention):
            described["attention"] = described["mixer"]  # its name in schema 1
    return {"name": facts.pop("name"), "source": facts.pop("source"), **counted, **facts}


def graph_facts(model: GraphModel) -> dict[str, Any]:
    """Return the facts of an operator graph; counts are per sample."""
    facts: dict[str, Any] = {
        "name": model.name,
        "source": model.source,
        "parameters": model.parameters,
        "published_parameters": model.published_parameters,
        "macs": model.macs,
        "published_macs": model.published_macs,
        "input": extents(model.input),
        "activations": model.activations,
        "notes": list(model.notes) or None,
    }
    return {
        **{name: value for name, value in facts.items() if value is not None},
        "operators": [_operator_facts(operator) for operator in model.operators],
    }


def _operator_facts(operator: Operator) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": operator.name,
        "kind": operator.kind.value,
        "input": extents(operator.input),
        "output": extents(operator.output),
    }
    if operator.kernel:
        facts |= {"kernel": extents(operator.kernel), "stride": extents(operator.stride)}
    return facts | {"parameters": operator.parameters, "macs": operator.macs}


def extents(shape: tuple[int, ...]) -> str:
    """Return a shape as text, like ``3x224x224``."""
    return "x".join(map(str, shape))


def _cluster_facts(cluster: Cluster) -> dict[str, Any]:
    facts: dict[str, Any] = plain(cluster)
    facts.pop("spec", None)  # the levels have the same values in the units of scoring
    return facts
