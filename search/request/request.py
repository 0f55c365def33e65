"""A request as the user wrote it, and what it means: one context, one space, every default named."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any, Self

from forerun.search.request.documents import document_tokens
from forerun.search.request.goodput import Interrupted, assumed, read_reliability
from forerun.search.request.limits import NO_LIMITS, TrainingLimits, limits_of
from forerun.search.request.objectives import objective_named
from forerun.simulator.memory.risk import risking
from forerun.spaces.budget import Budget, parse_budget
from forerun.spaces.clusters import Cluster, grown, resolve_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import all_switches, resolve_framework, settings_text, switched
from forerun.spaces.models import resolve_model
from forerun.spaces.models.tuning import frozen_parts, tuned
from forerun.spaces.strategies import (
    Context,
    Strategy,
    StrategySpace,
    default_choices,
    parse_strategy,
    restrict,
)
from forerun.spaces.strategies.defaults import LARGEST_CP, LARGEST_MBS, LARGEST_TP, LARGEST_VPP
from forerun.spaces.strategies.stage_laws import broken_laws
from forerun.spaces.workload import Workload

DEFAULT_PRECISION = "bf16"
DEFAULT_FRAMEWORK = "megatron-lm"
DEFAULT_OBJECTIVE = "throughput"
DEFAULT_TOP = 10
FRONT_TOP = 1000
"""Rows of a Pareto front where the user does not say how many: a front that is cut hides choices."""
LARGEST_COUNT = 10**9
"""Bound on batch, sequence and device counts: products of three of them stay within an int64 index."""


LARGEST_AMOUNT = 1e30
"""Tokens, seconds or USD."""
_KINDS: Mapping[type, tuple[str, ...]] = {
    str: (
        "model",
        "cluster",
        "gpus",
        "precision",
        "framework",
        "objective",
        "profile",
        "calibration",
        "lora",
        "freeze",
        "documents",
    ),
    int: ("global_batch", "seq_len", "top"),
    float: (
        "usd_per_hour",
        "usd_per_gpu_hour",
        "tokens",
        "train_within_s",
        "train_usd",
        "oom_risk",
        "moe_imbalance",
    ),
}
"""Fields of a request by what they are in plain data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks for; None where the user said nothing.

    ``model`` and ``cluster`` are catalogue names or files. ``gpus`` is a count or a range (``64..512``),
    ``usd_per_hour`` bounds them by money at ``usd_per_gpu_hour``. A training of ``tokens`` lasts no longer than
    ``train_within_s`` seconds and costs no more than ``train_usd``. ``oom_risk``: the highest risk of running out of
    memory at which a strategy counts as fitting. ``lora`` and ``freeze``: adapters, and parts that are not trained
    (``forerun.spaces.models.tuning``); ``documents``: what sequences are packed of. ``goodput``: facts about failures
    and checkpoints
    (``failures=2e-5,recovery=10min``, empty for the defaults), under which strategies rank by effective throughput.
    ``objective``: a name, or several with commas between them for their Pareto front; ``all_variants``:
    strategies with the same degrees are rows of their own. ``overrides`` are the user's own
    choices by axis. ``framework``: a name, with ``@VERSION`` of an earlier release, or a file; ``switches``: settings
    of its software that differ from the profile's defaults, by name (``{"bf16-grads": "on"}``). ``profile`` and
    ``calibration`` are files that ``forerun profile`` and ``forerun calibrate`` wrote. ``ignored_config_fields`` are
    fields of a Hugging Face configuration that are known not to change the cost.
    """

    model: str
    cluster: str
    global_batch: int
    seq_len: int
    gpus: str | None = None
    usd_per_hour: float | None = None
    usd_per_gpu_hour: float | None = None
    precision: str | None = None
    framework: str | None = None
    switches: Mapping[str, str] = field(default_factory=dict)
    all_variants: bool = False
    tokens: float | None = None
    train_within_s: float | None = None
    train_usd: float | None = None
    oom_risk: float | None = None
    goodput: str | None = None
    moe_imbalance: float | None = None
    lora: str | None = None
    freeze: str | None = None
    documents: str | None = None
    objective: str | None = None
    top: int | None = None
    overrides: Mapping[str, Sequence[object]] = field(default_factory=dict)
    profile: str | None = None
    calibration: str | None = None
    ignored_config_fields: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain data, fields without a value left out."""
        data = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        data["overrides"] = {axis: [str(value) for value in values] for axis, values in self.overrides.items()}
        for name in ("switches", "all_variants"):
            if not data[name]:
                del data[name]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the request of ``to_json``, or of a setting's, whose further keys are passed over.

        Raises:
            KeyError, TypeError, ValueError: a value is missing, or has another form.
        """
        known: dict[str, Any] = {
            name: kind(data[name]) for kind, names in _KINDS.items() for name in names if data.get(name) is not None
        }
        return cls(
            **{name: data[name] for name in ("model", "cluster", "global_batch", "seq_len")} | known,
            overrides={str(axis): list(values) for axis, values in (data.get("overrides") or {}).items()},
            all_variants=bool(data.get("all_variants")),
            switches={str(name): str(setting) for name, setting in (data.get("switches") or {}).items()},
            ignored_config_fields=tuple(map(str, data.get("ignored_config_fields") or ())),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a request means. ``gpus`` are the device counts to search, None where a strategy decides.

    ``defaults`` names every value that the user did not give, ``notes`` what reading model and cluster brought up.
    """

    request: Request
    context: Context
    gpus: tuple[int, ...] | None
    objective: str
    top: int
    usd_per_gpu_hour: float | None
    defaults: tuple[str, ...]
    notes: tuple[str, ...]
    limits: TrainingLimits = NO_LIMITS
    interrupted: Interrupted | None = None

    def space(self, overrides: Mapping[str, Sequence[object]] | None = None) -> StrategySpace:
        """Return the space to search; ``overrides`` replace those of the request.

        Raises:
            RequestError: no device count is known, or an axis or choice is.
        """
        if self.gpus is None:
            raise RequestError("a search needs a number of GPUs; add --gpus 512 or --gpus 64..512")
        own = self.request.overrides if overrides is None else overrides
        choices = restrict(default_choices(self.context, self.gpus), own)
        return StrategySpace(
            choices={axis: tuple(sorted(set(values))) for axis, values in choices.items()}, context=self.context
        )

    def slowdown(self) -> dict[int, float]:
        """Return by number of GPUs how much longer interruptions make a training; empty where none were asked for."""
        if self.interrupted is None or self.gpus is None:
            return {}
        return {gpus: self.interrupted.on(gpus).slowdown for gpus in self.gpus}

    def axes_left_open(self) -> str:
        """Return in words which choices the axes have that the user did not restrict."""
        return (
            f"{'other ' if self.request.overrides else ''}axes: all that {self.context.framework.name} offers, up to "
            f"tp {LARGEST_TP}, cp {LARGEST_CP}, vpp {LARGEST_VPP}, mbs {LARGEST_MBS}"
        )

    def remarks(self) -> tuple[str, ...]:
        """Return what was filled in and what is to be noted, as lines."""
        filled = (f"defaults used: {'; '.join(self.defaults)}",) if self.defaults else ()
        return (*filled, *(f"note: {note}" for note in self.notes))

    def to_json(self) -> dict[str, Any]:
        """Return the request with every default filled in, as plain data."""
        workload = self.context.workload
        data = self.request.to_json()
        data |= {
            "model_name": self.context.model.name,
            "cluster_name": self.context.cluster.name,
            "precision": workload.precision,
            "framework": self.request.framework or self.context.framework.name,
            "switches": dict(self.context.framework.switches),
            "gpu_counts": None if self.gpus is None else list(self.gpus),
            "objective": self.objective,
            "top": self.top,
        }
        return data


def resolve(request: "Request | Setting", *, groups: bool = False) -> Setting:
    """Return what a request means, a setting as it is; ``groups``: its cluster may have groups of nodes that differ.

    Raises:
        RequestError: any part of it is unknown, contradicts another or lies out of bounds.
    """
    if isinstance(request, Setting):
        return request
    for name in ("global_batch", "seq_len"):
        _bounded(name.replace("_", " "), getattr(request, name), LARGEST_COUNT)
    objective = objective_named(request.objective or DEFAULT_OBJECTIVE)
    top = (FRONT_TOP if objective.front else DEFAULT_TOP) if request.top is None else request.top
    _bounded("top", top, 100_000)
    for name in ("usd_per_hour", "usd_per_gpu_hour", "tokens", "train_within_s", "train_usd"):
        value = getattr(request, name)
        if value is not None and not 0 < value <= LARGEST_AMOUNT:
            raise RequestError(f"{name} must be more than 0 and at most {LARGEST_AMOUNT:g}, but got {value}")
    framework = switched(resolve_framework(request.framework or DEFAULT_FRAMEWORK), request.switches)
    cluster = grown(resolve_cluster(request.cluster, groups=groups), _most_asked(request))
    if request.usd_per_gpu_hour is not None:
        cluster = dataclasses.replace(cluster, usd_per_device_hour=request.usd_per_gpu_hour)
    resolved = resolve_model(request.model, ignore=frozenset(request.ignored_config_fields))
    workload = Workload(
        global_batch=request.global_batch,
        seq_len=request.seq_len,
        precision=request.precision or DEFAULT_PRECISION,
        tokens=request.tokens,
        moe_imbalance=1.0 if request.moe_imbalance is None else request.moe_imbalance,
        document_tokens=None if request.documents is None else document_tokens(request.documents, request.seq_len),
    )
    cluster.device.peak(workload.precision)  # refuses precisions that the device does not have
    model = tuned(resolved.model, request.lora, frozen_parts(request.freeze))
    context = Context(model=model, cluster=cluster, workload=workload, framework=framework)
    context = risking(context, request.oom_risk)
    interrupted = None
    if request.goodput is not None:
        interrupted = Interrupted(reliability=read_reliability(request.goodput), context=context)
    remarks: tuple[str, ...] = ()
    if request.profile is not None:
        from forerun.search.profiling import read_profile

        context, remarks = read_profile(Path(request.profile)).applied(context)
    if request.calibration is not None:
        from forerun.search.calibrate import read_calibration  # brings scipy, which a search does not need

        calibration = read_calibration(Path(request.calibration))
        calibration.check_profile(None if request.profile is None else Path(request.profile))
        context, more = calibration.applied(context)
        remarks = (*remarks, *more)
    return Setting(
        request=request,
        context=context,
        gpus=_gpu_counts(request, cluster),
        objective=objective.name,
        top=top,
        usd_per_gpu_hour=cluster.usd_per_device_hour,
        defaults=(
            *_defaults(request, context),
            *(() if interrupted is None else (assumed(interrupted.reliability),)),
        ),
        notes=(*resolved.notes, *_unheard(request, context), *_notes(context), *remarks),
        limits=limits_of(
            workload,
            within_s=request.train_within_s,
            usd=request.train_usd,
            usd_per_gpu_hour=cluster.usd_per_device_hour,
        ),
        interrupted=interrupted,
    )


def legal_strategy(setting: Setting, given: str | Strategy) -> Strategy:
    """Return a strategy that keeps every law of the setting; ``given`` may be its text.

    Raises:
        RequestError: the text cannot be read, or the strategy breaks laws; the message has all of them.
    """
    strategy = parse_strategy(given) if isinstance(given, str) else given
    _bounded("devices of the strategy", strategy.devices, setting.context.cluster.max_devices)
    if setting.gpus is not None and strategy.devices not in setting.gpus:
        counts = " or ".join(map(str, setting.gpus[:8]))
        raise RequestError(f"strategy {strategy} occupies {strategy.devices} GPUs, but --gpus asks for {counts}")
    broken = broken_laws(strategy, setting.context)
    if broken:
        laws = "\n".join(f"  {message}" for message in broken)
        raise RequestError(f"strategy {strategy} is not legal:\n{laws}")
    return strategy


def _bounded(name: str, value: int, highest: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):  # from Python; the command line reads numbers
        raise RequestError(f"{name} is a whole number, but got {value!r}")
    if not 1 <= value <= highest:
        raise RequestError(f"{name} must lie between 1 and {highest}, but got {value}")


def _most_asked(request: Request) -> int:
    """Return the largest number of devices that a request names, 0 where it names none."""
    budget = None if request.gpus is None else parse_budget(request.gpus)
    asked = 0 if budget is None else budget.most or budget.least
    return asked


def _gpu_counts(request: Request, cluster: Cluster) -> tuple[int, ...] | None:
    """Return the device counts to search; None where the user named neither a number nor a sum."""
    budget = None if request.gpus is None else parse_budget(request.gpus)
    if request.usd_per_hour is not None:
        least, most = (1, None) if budget is None else (budget.least, budget.most)
        budget = Budget(least=least, most=most, usd_per_hour=request.usd_per_hour)
    if budget is not None and budget.usd_per_hour is not None and cluster.usd_per_device_hour is None:
        raise RequestError("a budget in USD per hour needs a price; add --usd-per-gpu-hour")
    return None if budget is None else budget.device_counts(cluster)


def _defaults(request: Request, context: Context) -> list[str]:
    """Return every value that was filled in for the user."""
    price = context.cluster.usd_per_device_hour
    filled = []
    if request.precision is None:
        filled.append(f"precision {DEFAULT_PRECISION}")
    if request.framework is None:
        filled.append(f"framework {DEFAULT_FRAMEWORK}")
    if assumed := _switches(request, context):
        filled.append(f"switches {settings_text(assumed)} ({context.framework.name}'s defaults)")
    if request.objective is None:
        filled.append(f"objective {DEFAULT_OBJECTIVE}")
    if request.top is None and "," not in (request.objective or ""):
        filled.append(f"top {DEFAULT_TOP}")
    if request.moe_imbalance is None and context.moe:
        filled.append("moe imbalance 1.0 (tokens spread evenly over experts)")
    if request.usd_per_gpu_hour is None and price is not None:
        filled.append(f"price {price:g} USD per GPU-hour (from the cluster)")
    filled += [f"cluster {default}" for default in context.cluster.defaults]
    return filled


def _switches(request: Request, context: Context) -> dict[str, str]:
    """Return the settings of switches that the user did not give and that the software does not have by itself."""
    assumed = {}
    for name, setting in context.framework.switches:
        switch = all_switches()[name]
        support = switch.support(context.framework)
        heard = context.moe or "moe" not in switch.needs
        if name not in request.switches and heard and support is not None and setting != support.unset:
            assumed[name] = setting
    return assumed


def _unheard(request: Request, context: Context) -> list[str]:
    """Return what the user said that this model does not listen to; a sweep says it to several models at once."""
    model, told = context.model.name, []
    if request.moe_imbalance is not None and not context.moe:
        told.append(f"an imbalance of experts changes nothing: {model} has none")
    if (
        request.ignored_config_fields
        and not request.model.lower().endswith(".json")
        and not Path(request.model).is_dir()
    ):
        told.append(f"no field was ignored: {model} was not read from a config.json")
    return told


def _notes(context: Context) -> list[str]:
    longest = context.model.max_seq_len
    if longest is not None and context.workload.seq_len > longest:
        return [f"sequence length {context.workload.seq_len} exceeds the {longest} that {context.model.name} states"]
    return []
