"""Resolution of a request: models, clusters and software by name, defaults, bounds."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from forerun.search.order.objectives import objective_named
from forerun.search.request.goodput import Interrupted, assumed, read_reliability
from forerun.search.request.kinds import TRANSFORMERS, kind_named
from forerun.search.request.limits import limits_of
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.prices import usd_per_device_hour
from forerun.search.request.quantities import document_tokens
from forerun.search.request.request import (
    DEFAULT_OBJECTIVE,
    DEFAULT_TOP,
    FRONT_TOP,
    ONLY_GRAPHS,
    Request,
)
from forerun.search.request.setting import Setting
from forerun.simulator.costs.efficiency import compute_provenance
from forerun.simulator.costs.power import COMPUTING, WAITING, power_limit_w
from forerun.simulator.memory.risk import risking
from forerun.spaces.budget import Budget, parse_budget
from forerun.spaces.clusters import Cluster, device_names, grown, resolve_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import (
    FrameworkProfile,
    all_switches,
    resolve_framework,
    settings_text,
    switched,
)
from forerun.spaces.frameworks.hardware import device_kinds
from forerun.spaces.frameworks.recipes import agreed, implied
from forerun.spaces.frameworks.switches import missing_hardware, on_devices
from forerun.spaces.frameworks.usual import GENERIC, usual_framework
from forerun.spaces.models import resolve_model
from forerun.spaces.models.model import Model
from forerun.spaces.models.tuning import frozen_parts, tuned
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.strategies import Context
from forerun.spaces.strategies.racks import rack_devices
from forerun.spaces.strategies.software import unsuited
from forerun.spaces.workload import Workload

if TYPE_CHECKING:
    from forerun.simulator.opgraph import GraphContext

C = TypeVar("C", bound="Context | GraphContext")
LARGEST_COUNT = 10**9
"""Bound on batch, sequence and device counts: products of three of them stay within an int64 index."""


LEAST_AMOUNT, LARGEST_AMOUNT = 1e-9, 1e30
"""Upper bound of tokens, seconds or USD."""
_OF_TRANSFORMERS = (
    "seq_len",
    "lora",
    "freeze",
    "documents",
    "tokens",
    "train_within_s",
    "train_usd",
    "goodput",
    "moe_imbalance",
    "ignored_config_fields",
)
"""Fields that only transformers have."""


def resolve(request: "Request | Setting[AnyContext]", *, groups: bool = False) -> "Setting[AnyContext]":
    """Resolve a request to a setting; a setting is returned unchanged.

    ``groups``: the cluster may have groups of nodes.

    Raises
    ------
    RequestError
        A part of the request is unknown, contradicts another or is out of bounds.
    """
    if isinstance(request, Setting):
        return request
    objective = objective_named(request.objective or DEFAULT_OBJECTIVE)
    top = (FRONT_TOP if objective.front else DEFAULT_TOP) if request.top is None else request.top
    _bounded("top", top, 100_000)
    for name in ("usd_per_hour", "tokens", "train_within_s", "train_usd"):
        _amount(name, getattr(request, name))
    graph = kind_named(request.model) is not TRANSFORMERS
    for name in _OF_TRANSFORMERS if graph else ONLY_GRAPHS:
        if getattr(request, name) not in (None, False, (), {}):
            whose, other = ("transformers", "is an operator graph") if graph else ("operator graphs", "is not")
            raise RequestError(f"{name} is for {whose}, and {request.model} {other}")
    kind_named(request.model).check(request.overrides)
    common = {"objective": objective.name, "top": top}
    return _graph_setting(request, common) if graph else _setting(request, common, groups=groups)


def _amount(name: str, value: float | None) -> None:
    if value is not None and not LEAST_AMOUNT <= value <= LARGEST_AMOUNT:
        raise RequestError(f"{name} must be between {LEAST_AMOUNT:g} and {LARGEST_AMOUNT:g}, but got {value}")


def _priced(cluster: Cluster, request: Request) -> tuple[Cluster, Request]:
    """Return a cluster with the price of its devices, and the request with that price as a number."""
    if request.usd_per_gpu_hour is None:
        return cluster, request
    price, origin = usd_per_device_hour(request.usd_per_gpu_hour, cluster)
    _amount("usd_per_gpu_hour", price)
    origins = (*request.user_defaults, origin) if origin else request.user_defaults
    request = dataclasses.replace(request, usd_per_gpu_hour=price, user_defaults=origins)
    return dataclasses.replace(cluster, usd_per_device_hour=price), request


def _graph_setting(request: Request, common: Mapping[str, Any]) -> "Setting[GraphContext]":
    from forerun.search.request.graphs import graph_cluster, graph_context
    from forerun.search.request.operator_graphs import OPERATOR_GRAPHS

    cluster, request = _priced(graph_cluster(request.cluster), request)
    context, notes = graph_context(request, cluster)
    request = dataclasses.replace(request, global_batch=context.global_batch)
    context, remarks = _learned(context, request)
    return Setting(
        request=request,
        context=context,
        gpus=_gpu_counts(request, cluster),
        usd_per_gpu_hour=cluster.usd_per_device_hour,
        defaults=(
            *([] if request.precision else [f"precision {context.precision}"]),
            *([] if request.framework else [f"framework {OPERATOR_GRAPHS.framework}"]),
            *([] if request.seconds_per_sample else ["one-GPU time by the cost rules"]),
            *_common_defaults(request, cluster),
        ),
        notes=(*notes, *remarks),
        **common,
    )


def _setting(request: Request, common: Mapping[str, Any], *, groups: bool) -> Setting:
    batch, seq_len = request.global_batch, request.seq_len
    if isinstance(batch, PerDevice):
        raise RequestError(f"a batch per GPU is for operator graphs, but got {batch}; write the whole batch of a step")
    if seq_len is None:
        raise RequestError(f"{request.model} reads sequences: say how long they are with --seq-len")
    _bounded("global batch", batch, LARGEST_COUNT)
    _bounded("seq len", seq_len, LARGEST_COUNT)
    cluster = grown(resolve_cluster(request.cluster, groups=groups), _most_asked(request))
    cluster, request = _priced(cluster, request)
    resolved = resolve_model(request.model, ignore=frozenset(request.ignored_config_fields))
    framework = _framework(request, cluster, resolved.model)
    framework, precision = agreed(framework, request.precision or cluster.device.usual_precision, request.switches)
    workload = Workload(
        global_batch=int(batch),  # YAML has no numpy integers
        seq_len=int(seq_len),
        precision=precision,
        tokens=request.tokens,
        moe_imbalance=1.0 if request.moe_imbalance is None else request.moe_imbalance,
        document_tokens=None if request.documents is None else document_tokens(request.documents, seq_len),
    )
    cluster.device.peak(precision)  # refuses precisions that the device lacks
    framework = _on_cluster(framework, cluster, request)
    model = tuned(resolved.model, request.lora, frozen_parts(request.freeze))
    context = Context(model=model, cluster=cluster, workload=workload, framework=framework)
    if lacking := unsuited(request.switches, model):
        raise RequestError("; ".join(lacking))
    context = risking(context, request.oom_risk)
    interrupted = None
    if request.goodput is not None:
        interrupted = Interrupted(reliability=read_reliability(request.goodput), context=context)
    context, remarks = _learned(context, request)
    return Setting(
        request=request,
        context=context,
        gpus=_gpu_counts(request, cluster),
        usd_per_gpu_hour=cluster.usd_per_device_hour,
        defaults=(
            *_defaults(request, context),
            *(() if interrupted is None else (assumed(interrupted.reliability),)),
        ),
        notes=(*resolved.notes, *_unheard(request, context), *_notes(context), *remarks),
        warnings=(*_cautions(cluster), *_partial_racks(cluster, _gpu_counts(request, cluster))),
        limits=limits_of(
            workload,
            within_s=request.train_within_s,
            usd=request.train_usd,
            usd_per_gpu_hour=cluster.usd_per_device_hour,
        ),
        interrupted=interrupted,
        **common,
    )


def _framework(request: Request, cluster: Cluster, model: Model) -> FrameworkProfile:
    """Return the framework of a request, or the usual one of model and cluster, with its switches set."""
    named = request.framework or TRANSFORMERS.usual(model, cluster)
    return switched(resolve_framework(named), request.switches)


def _on_cluster(framework: FrameworkProfile, cluster: Cluster, request: Request) -> FrameworkProfile:
    """Return a framework with the settings that a cluster's devices support."""
    here = device_kinds(cluster)
    if unmet := [text for machine in here if (text := framework.hardware.unmet(machine))]:
        fixes = dict.fromkeys((usual_framework(here), GENERIC))
        raise RequestError(f"{framework.name} {unmet[0]}; use --framework {' or '.join(fixes)}")
    if texts := missing_hardware(framework, request.switches, here):
        raise RequestError(f"{'; '.join(texts)}; drop it")
    return on_devices(framework, here)


def _learned(context: C, request: Request) -> tuple[C, tuple[str, ...]]:
    """Return a context with the request's profile and calibration applied, and notes."""
    remarks: tuple[str, ...] = ()
    if request.profile is not None:
        from forerun.search.measured.profiling import read_profile

        context, remarks = read_profile(Path(request.profile)).applied(context)
    if request.calibration is None:
        return context, remarks
    from forerun.search.measured.calibrate import read_calibration  # imports scipy, which a search does not need

    calibration = read_calibration(Path(request.calibration))
    calibration.check_profile(None if request.profile is None else Path(request.profile))
    context, more = calibration.applied(context)
    return context, (*remarks, *more)


def _bounded(name: str, value: int, highest: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):  # from Python; the command line reads numbers
        raise RequestError(f"{name} is a whole number, but got {value!r}")
    if not 1 <= value <= highest:
        raise RequestError(f"{name} must be between 1 and {highest}, but got {value}")


def _most_asked(request: Request) -> int:
    """Return the largest requested number of devices, 0 without one."""
    budget = None if request.gpus is None else parse_budget(request.gpus)
    asked = 0 if budget is None else budget.most or budget.least
    return asked


def _gpu_counts(request: Request, cluster: Cluster) -> tuple[int, ...] | None:
    """Return the device counts to search; None without a number of devices or a sum of money."""
    budget = None if request.gpus is None else parse_budget(request.gpus)
    if request.usd_per_hour is not None:
        least, most = (1, None) if budget is None else (budget.least, budget.most)
        budget = Budget(least=least, most=most, usd_per_hour=request.usd_per_hour)
    if budget is not None and budget.usd_per_hour is not None and cluster.usd_per_device_hour is None:
        raise RequestError("a budget in USD per hour needs a price; add --usd-per-gpu-hour")
    return None if budget is None else budget.device_counts(cluster)


def _defaults(request: Request, context: Context) -> list[str]:
    """Return all defaults of a request."""
    filled = []
    if request.precision is None:
        filled.append(f"precision {context.cluster.device.usual_precision}")
    if request.framework is None:
        filled.append(f"framework {context.framework.name}{_why_usual(context)}")
    if assumed := _switches(request, context):
        filled.append(f"switches {settings_text(assumed)} ({context.framework.name}'s defaults)")
    if request.objective is None:
        filled.append(f"objective {DEFAULT_OBJECTIVE}")
    if request.top is None and "," not in (request.objective or ""):
        filled.append(f"top {DEFAULT_TOP}")
    if request.moe_imbalance is None and context.moe:
        filled.append("moe imbalance 1.0 (tokens spread evenly over experts)")
    if images := {layer.tokens for layer in context.model.layers if layer.tokens}:
        tokens = " and ".join(f"{count:,}" for count in sorted(images))
        filled.append(f"{tokens} encoder tokens (image patches or audio frames) beside every sequence")
    if request.tokens is not None and (limit_w := power_limit_w(context.cluster)) is not None:
        filled.append(f"GPUs of {limit_w:,.0f} W: {COMPUTING:.0%} of it while computing, {WAITING:.0%} while waiting")
    return [*filled, *_common_defaults(request, context.cluster)]


def _why_usual(context: Context) -> str:
    """Return in brackets the reason for an unusual default framework; "" for the usual one."""
    if context.framework.name == TRANSFORMERS.framework:
        return ""
    vendors = dict.fromkeys(machine.vendor for machine in device_kinds(context.cluster))
    kind = "" if context.model.decodes else " for models that are no decoders"
    return f" (usual on devices of {' and '.join(vendors)}{kind})"


def _common_defaults(request: Request, cluster: Cluster) -> list[str]:
    """Return the defaults that every kind of model has."""
    price, filled = cluster.usd_per_device_hour, []
    if request.usd_per_gpu_hour is None and price is not None:
        filled.append(f"price {price:g} USD per GPU-hour (from the cluster)")
    return [
        *filled,
        *request.user_defaults,
        *_constants(cluster),
        *(f"cluster {default}" for default in cluster.defaults),
    ]


def _constants(cluster: Cluster) -> Iterator[str]:
    """Yield the source of fitted constants of each uncatalogued device."""
    groups = [group.cluster for group in cluster.groups] or [cluster]
    for device in {one.device.name: one.device for one in groups}.values():
        if device.name not in device_names():
            whose = f"those of {device.like}" if device.like else compute_provenance(device)
            yield f"constants of {device.name}: {whose}"


def _switches(request: Request, context: Context) -> dict[str, str]:
    """Return the switch settings that differ from the software's defaults without being set by the user."""
    assumed, settings = {}, dict(context.framework.switches)
    for name, setting in context.framework.switches:
        switch = all_switches()[name]
        support = switch.support(context.framework)
        applies = (context.moe or "moe" not in switch.needs) and settings.get(switch.beside) != "off"
        applies = applies and name not in implied(context.workload.precision)
        if name not in request.switches and applies and support is not None and setting != support.unset:
            assumed[name] = setting
    return assumed


def _cautions(cluster: Cluster) -> list[str]:
    """Return doubts about the description of a cluster or of its groups of nodes."""
    clusters = [cluster, *(group.cluster for group in cluster.groups)]
    return list(dict.fromkeys(text for one in clusters for text in one.cautions))


def _partial_racks(cluster: Cluster, counts: Sequence[int] | None) -> Iterator[str]:
    """Yield the note on a number of devices that does not fill whole racks."""
    rack = rack_devices(cluster)
    if not rack or counts is None or len(counts) > 1 or counts[0] <= rack or counts[0] % rack == 0:
        return
    (count,) = counts
    below, above = count // rack * rack, -(-count // rack) * rack
    larger = f" or {above:,}" if above <= cluster.max_devices else ""
    each, left = divmod(count, above // rack)
    equal = f", or {each} of each in {above // rack:,}" if not left and each % cluster.devices_per_node == 0 else ""
    yield f"{count:,} GPUs are {count / rack:,.1f} racks of {rack}{equal}; whole racks are {below:,}{larger}"


def _unheard(request: Request, context: Context) -> list[str]:
    """Return notes on fields that do not affect this model; a sweep has one request for several models."""
    model, notes = context.model.name, []
    if request.moe_imbalance is not None and not context.moe:
        notes.append(f"an imbalance of experts changes nothing: {model} has none")
    if (
        request.ignored_config_fields
        and not request.model.lower().endswith(".json")
        and not Path(request.model).is_dir()
    ):
        notes.append(f"no field was ignored: {model} was not read from a config.json")
    return notes


def _notes(context: Context) -> list[str]:
    longest = context.model.max_seq_len
    if longest is not None and context.workload.seq_len > longest:
        return [f"sequence length {context.workload.seq_len} exceeds the {longest} that {context.model.name} states"]
    return []
