"""A request as the user wrote it, and what it means: one context, one space, every default named."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from forerun.search.request.documents import document_tokens
from forerun.search.request.goodput import Interrupted, assumed, read_reliability
from forerun.search.request.graphs import graph_cluster, graph_context
from forerun.search.request.kinds import OPERATOR_GRAPHS, TRANSFORMERS, AnyStrategy, kind_named, kind_of
from forerun.search.request.limits import NO_LIMITS, TrainingLimits, limits_of
from forerun.search.request.objectives import objective_named
from forerun.simulator.memory.risk import risking
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.space import SplitSpace
from forerun.spaces.budget import Budget, parse_budget
from forerun.spaces.clusters import Cluster, grown, resolve_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import all_switches, resolve_framework, settings_text, switched
from forerun.spaces.models import resolve_model
from forerun.spaces.models.tuning import frozen_parts, tuned
from forerun.spaces.opgraph.batch import PerDevice, parse_batch
from forerun.spaces.strategies import Context, Software, StrategySpace
from forerun.spaces.strategies.defaults import LARGEST_CP, LARGEST_MBS, LARGEST_TP, LARGEST_VPP
from forerun.spaces.strategies.software import can_turn_on, for_experts, names_of
from forerun.spaces.workload import Workload

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    C = TypeVar("C", bound=Context | GraphContext, default=Context)
else:
    from typing import TypeVar

    C = TypeVar("C")

DEFAULT_PRECISION = "bf16"
DEFAULT_OBJECTIVE = "throughput"
DEFAULT_TOP = 10
FRONT_TOP = 1000
"""Rows of a Pareto front where the user does not say how many: a front that is cut hides choices."""
LARGEST_COUNT = 10**9
"""Bound on batch, sequence and device counts: products of three of them stay within an int64 index."""


LEAST_AMOUNT, LARGEST_AMOUNT = 1e-9, 1e30
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
        "optimizer",
    ),
    int: ("seq_len", "top"),
    float: (
        "usd_per_hour",
        "usd_per_gpu_hour",
        "tokens",
        "train_within_s",
        "train_usd",
        "oom_risk",
        "moe_imbalance",
        "seconds_per_sample",
    ),
}
"""Fields of a request by what they are in plain data."""
_OF_GRAPHS = ("seconds_per_sample", "allow_generic", "optimizer")
"""Fields that only operator graphs have."""
_OF_TRANSFORMERS = (
    "seq_len",
    "switches",
    "lora",
    "freeze",
    "documents",
    "tokens",
    "train_within_s",
    "train_usd",
    "goodput",
    "moe_imbalance",
    "profile",
    "calibration",
    "ignored_config_fields",
)
"""Fields that only transformers have."""


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

    Of operator graphs, which have no sequence length: ``global_batch`` in samples, or of each device;
    ``seconds_per_sample``, forward and backward pass as measured on one device; ``optimizer``, in place of the
    framework's; ``allow_generic``: imported operators without a rule are costed by their bytes and operations.
    """

    model: str
    cluster: str
    global_batch: int | PerDevice
    seq_len: int | None = None
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
    seconds_per_sample: float | None = None
    optimizer: str | None = None
    allow_generic: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain data, fields without a value left out but those that all operator graphs have."""
        graph = kind_named(self.model) is OPERATOR_GRAPHS
        kept = (*_OF_GRAPHS, "gpus", "usd_per_gpu_hour") if graph else ()
        data = {key: value for key, value in dataclasses.asdict(self).items() if value is not None or key in kept}
        data["overrides"] = {axis: [str(value) for value in values] for axis, values in self.overrides.items()}
        if isinstance(self.global_batch, PerDevice):
            data["global_batch"] = str(self.global_batch)
        for name in ("switches", "all_variants", "allow_generic"):
            if not data[name] and name not in kept:
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
            **{name: data[name] for name in ("model", "cluster")} | known,
            global_batch=parse_batch(str(data["global_batch"])),
            overrides={str(axis): list(values) for axis, values in (data.get("overrides") or {}).items()},
            all_variants=bool(data.get("all_variants")),
            allow_generic=bool(data.get("allow_generic")),
            switches=set_switches(data),
            ignored_config_fields=tuple(map(str, data.get("ignored_config_fields") or ())),
        )


def set_switches(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the switches of a request or a setting as plain data, without those that its search turned on."""
    free = {str(words).partition("=")[0] for words in data.get("free_switches") or ()}
    return {str(name): str(setting) for name, setting in (data.get("switches") or {}).items() if name not in free}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[C]):
    """What a request means, with the context of its kind of model (``kinds``). ``gpus`` are the device counts to
    search, None where a strategy decides.

    ``defaults`` names every value that the user did not give, ``notes`` what reading model and cluster brought up.
    """

    request: Request
    context: C
    gpus: tuple[int, ...] | None
    objective: str
    top: int
    usd_per_gpu_hour: float | None
    defaults: tuple[str, ...]
    notes: tuple[str, ...]
    limits: TrainingLimits = NO_LIMITS
    interrupted: Interrupted | None = None

    @overload
    def space(self: "Setting", overrides: Mapping[str, Sequence[object]] | None = None) -> StrategySpace: ...

    @overload
    def space(self: "Setting[GraphContext]", overrides: Mapping[str, Sequence[object]] | None = None) -> SplitSpace: ...

    def space(self, overrides: Mapping[str, Sequence[object]] | None = None) -> StrategySpace | SplitSpace:
        """Return the space to search; ``overrides`` replace those of the request.

        Raises:
            RequestError: no device count is known, or an axis or choice is.
        """
        if self.gpus is None:
            raise RequestError("a search needs a number of GPUs; add --gpus 512 or --gpus 64..512")
        own = self.request.overrides if overrides is None else overrides
        context: object = self.context
        if isinstance(context, Context):
            context = dataclasses.replace(context, free_software=self.free_software)
        return kind_of(context).space(context, self.gpus, own)

    @property
    def free_software(self) -> Software:
        """Switches that a search turns on where they pay: those that the user did not set."""
        if not isinstance(self.context, Context):
            return Software.NONE
        return can_turn_on(self.context.framework, but=self.request.switches.keys())

    def slowdown(self) -> dict[int, float]:
        """Return by number of GPUs how much longer interruptions make a training; empty where none were asked for."""
        if self.interrupted is None or self.gpus is None:
            return {}
        return {gpus: self.interrupted.on(gpus).slowdown for gpus in self.gpus}

    def axes_left_open(self) -> str:
        """Return in words which choices the axes have that the user did not restrict."""
        other = "other " if self.request.overrides else ""
        if isinstance(self.context, GraphContext):
            return f"{other}axes: every mode and grid of an operator graph"
        return (
            f"{other}axes: all that {self.context.framework.name} offers, up to "
            f"tp {LARGEST_TP}, cp {LARGEST_CP}, vpp {LARGEST_VPP}, mbs {LARGEST_MBS}{self._switches_left_open()}"
        )

    def _switches_left_open(self) -> str:
        """Return in words which switches are searched; "" where the model listens to none of them."""
        moe = isinstance(self.context, Context) and self.context.moe
        free = [words for words in names_of(self.free_software) if moe or not for_experts(words)]
        return f", and {' and '.join(free)} where {'they pay' if free[1:] else 'it pays'}" if free else ""

    def remarks(self) -> tuple[str, ...]:
        """Return what was filled in and what is to be noted, as lines."""
        filled = (f"defaults used: {'; '.join(self.defaults)}",) if self.defaults else ()
        return (*filled, *(f"note: {note}" for note in self.notes))

    def to_json(self) -> dict[str, Any]:
        """Return the request with every default filled in, as plain data."""
        data = self.request.to_json()
        data |= {
            "model_name": self.context.model.name,
            "cluster_name": self.context.cluster.name,
            "free_switches": names_of(self.free_software),
            "gpu_counts": None if self.gpus is None else list(self.gpus),
            "objective": self.objective,
            "top": self.top,
        }
        told = kind_of(self.context).request(self.context, self.request.overrides)
        return data | told | ({"framework": self.request.framework} if self.request.framework else {})

    def document(self) -> dict[str, Any]:
        """Return the request as documents without a leaderboard have it: with what was filled in and noted."""
        return {**self.to_json(), "defaults": list(self.defaults), "notes": list(self.notes)}


def resolve(request: "Request | Setting[Any]", *, groups: bool = False) -> "Setting[Any]":
    """Return what a request means, a setting as it is; ``groups``: its cluster may have groups of nodes that differ.

    Raises:
        RequestError: any part of it is unknown, contradicts another or lies out of bounds.
    """
    if isinstance(request, Setting):
        return request
    objective = objective_named(request.objective or DEFAULT_OBJECTIVE)
    top = (FRONT_TOP if objective.front else DEFAULT_TOP) if request.top is None else request.top
    _bounded("top", top, 100_000)
    for name in ("usd_per_hour", "usd_per_gpu_hour", "tokens", "train_within_s", "train_usd"):
        value = getattr(request, name)
        if value is not None and not LEAST_AMOUNT <= value <= LARGEST_AMOUNT:
            raise RequestError(f"{name} must be between {LEAST_AMOUNT:g} and {LARGEST_AMOUNT:g}, but got {value}")
    graph = kind_named(request.model) is OPERATOR_GRAPHS
    for name in _OF_TRANSFORMERS if graph else _OF_GRAPHS:
        if getattr(request, name) not in (None, False, (), {}):
            whose, other = ("transformers", "is an operator graph") if graph else ("operator graphs", "is not")
            raise RequestError(f"{name} is for {whose}, and {request.model} {other}")
    kind_named(request.model).check(request.overrides)
    common = {"objective": objective.name, "top": top}
    return _graph_setting(request, common) if graph else _setting(request, common, groups=groups)


def _priced(cluster: Cluster, request: Request) -> Cluster:
    if request.usd_per_gpu_hour is None:
        return cluster
    return dataclasses.replace(cluster, usd_per_device_hour=request.usd_per_gpu_hour)


def _graph_setting(request: Request, common: Mapping[str, Any]) -> "Setting[GraphContext]":
    cluster = _priced(graph_cluster(request.cluster), request)
    context, notes = graph_context(
        model=request.model,
        cluster=cluster,
        global_batch=request.global_batch,
        precision=request.precision,
        framework=request.framework,
        optimizer=request.optimizer,
        seconds_per_sample=request.seconds_per_sample,
        allow_generic=request.allow_generic,
        oom_risk=request.oom_risk,
    )
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
        notes=notes,
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
    framework = switched(resolve_framework(request.framework or TRANSFORMERS.framework), request.switches)
    cluster = _priced(grown(resolve_cluster(request.cluster, groups=groups), _most_asked(request)), request)
    resolved = resolve_model(request.model, ignore=frozenset(request.ignored_config_fields))
    workload = Workload(
        global_batch=batch,
        seq_len=seq_len,
        precision=request.precision or DEFAULT_PRECISION,
        tokens=request.tokens,
        moe_imbalance=1.0 if request.moe_imbalance is None else request.moe_imbalance,
        document_tokens=None if request.documents is None else document_tokens(request.documents, seq_len),
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
        **common,
    )


def legal_strategy(setting: "Setting[Any]", given: str | AnyStrategy) -> Any:
    """Return a strategy that keeps every law of the setting; ``given`` may be its text.

    Raises:
        RequestError: the text cannot be read, or the strategy breaks laws; the message has all of them.
    """
    context, kind = setting.context, kind_of(setting.context)
    strategy = kind.parse(context, given) if isinstance(given, str) else given
    devices, cluster = strategy.devices, context.cluster
    if devices > cluster.max_devices:
        raise RequestError(f"{strategy} occupies {devices} GPUs, but {cluster.name} has {cluster.max_devices}")
    if setting.gpus is not None and devices not in setting.gpus:
        counts = " or ".join(map(str, setting.gpus[:8]))
        raise RequestError(f"strategy {strategy} occupies {devices} GPUs, but --gpus asks for {counts}")
    broken = kind.broken(context, strategy)
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
    filled = []
    if request.precision is None:
        filled.append(f"precision {DEFAULT_PRECISION}")
    if request.framework is None:
        filled.append(f"framework {TRANSFORMERS.framework}")
    if assumed := _switches(request, context):
        filled.append(f"switches {settings_text(assumed)} ({context.framework.name}'s defaults)")
    if request.objective is None:
        filled.append(f"objective {DEFAULT_OBJECTIVE}")
    if request.top is None and "," not in (request.objective or ""):
        filled.append(f"top {DEFAULT_TOP}")
    if request.moe_imbalance is None and context.moe:
        filled.append("moe imbalance 1.0 (tokens spread evenly over experts)")
    return [*filled, *_common_defaults(request, context.cluster)]


def _common_defaults(request: Request, cluster: Cluster) -> list[str]:
    """Return what was filled in for any kind of model."""
    price, filled = cluster.usd_per_device_hour, []
    if request.usd_per_gpu_hour is None and price is not None:
        filled.append(f"price {price:g} USD per GPU-hour (from the cluster)")
    return [*filled, *(f"cluster {default}" for default in cluster.defaults)]


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
