"""Searches of a sweep: the product of models, clusters, workloads, budgets and frameworks, each a search.

The document names each as a list (or one value)::

    models: [llama3-8b, llama3-70b]
    clusters: [dgx-h100, dgx-a100-80]
    workloads:
      - {global_batch: 1024, seq_len: 8192, precision: bf16}   # of operator graphs: {global_batch: 64/gpu}
    budgets:
      - {gpus: 64..512}
      - {usd_per_hour: 3000, usd_per_gpu_hour: 2.5}
      - {gpus: 64..1024, train_within: 30d, train_usd: 2e6, usd_per_gpu_hour: 2.5}   # with tokens in the workload
    frameworks: [megatron-lm, torchtitan]   # default: the usual one of the model and the cluster
    objective: cost                         # default throughput; a front like throughput,gpus
    top: 5                                  # rows kept of each search, default 10 (all of a front)
    axes: {recompute: [none, full]}         # restricts every search

If stages may differ, a sampler searches beyond the flat space, once per seed::

    per_stage: [layers, recompute]          # settings that may differ: layers, recompute, tp, offload
    sampler: local                          # default auto
    seeds: [0, 1, 2]                        # default one, 0
    evaluations: 20000                      # limit of each search
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from forerun.search.explore.samplers.registry import Exploring
from forerun.search.files.documents import cost_model_version
from forerun.search.order.objectives import objective_named
from forerun.search.request.kinds import TRANSFORMERS, AnyKind, kind_named
from forerun.search.request.request import DEFAULT_OBJECTIVE, Request
from forerun.spaces.budget import parse_budget
from forerun.spaces.clusters import resolve_cluster
from forerun.spaces.documents import read_document, validate
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks.switches import as_word
from forerun.spaces.opgraph.batch import PerDevice, parse_batch
from forerun.spaces.reading import digest_of
from forerun.spaces.units import parse_count, parse_seconds, parse_share, with_unit
from forerun.spaces.workload import Workload

MOST_PIECES = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSearch:
    """One search of a sweep. ``key`` names its inputs by content: request, sampler, model, cluster and cost model.

    ``exploring`` has the options of a sampler of stages that differ; None: the flat space is searched completely.
    """

    number: int
    key: str
    request: Request
    exploring: Exploring | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlan:
    """All searches of a sweep in canonical order: models slowest, frameworks fastest."""

    pieces: tuple[SweepSearch, ...]
    objective: str

    @property
    def digest(self) -> str:
        """Key of the plan: two plans with the same key have the same pieces in the same order."""
        return _digest([self.objective, *(piece.key for piece in self.pieces)])


def read_plan(path: Path, *, calibration: str | None = None, profile: str | None = None) -> SweepPlan:
    """Read a sweep document; ``calibration``, ``profile``: files that every search uses.

    Raises
    ------
    RequestError
        The document cannot be read, has unknown keys, names something unknown or the same search twice.
    """
    from pydantic import BaseModel, ConfigDict, Field

    Seed = Annotated[int, Field(ge=0, lt=2**32)]

    class Part(BaseModel):
        """Base of the parts of a sweep document."""

        model_config = ConfigDict(extra="forbid", strict=True)

    class WorkloadPart(Part):
        """One workload; fields as in a search."""

        global_batch: int | str
        seq_len: int | None = None
        precision: str | None = None
        tokens: int | float | str | None = None
        moe_imbalance: int | float | None = None

    class BudgetPart(Part):
        """One budget; flags as in a search."""

        gpus: int | str | None = None
        usd_per_hour: int | float | None = None
        usd_per_gpu_hour: int | float | None = None
        train_within: str | None = None
        train_usd: int | float | None = None
        oom_risk: int | float | str | None = None
        goodput: str | None = None

    class SweepDocument(Part):
        """A sweep: lists whose product is searched."""

        models: list[str] | str
        clusters: list[str] | str
        workloads: list[WorkloadPart]
        budgets: list[BudgetPart]
        frameworks: list[str] | str | None = None
        switches: dict[str, str | bool] = Field(default_factory=dict)
        objective: str = DEFAULT_OBJECTIVE
        top: int | None = None
        axes: dict[str, list[int | str | bool] | int | str | bool] = Field(default_factory=dict)
        per_stage: list[str] | str | None = None
        sampler: str | None = None
        seeds: list[Seed] | Seed | None = None
        evaluations: Annotated[int, Field(ge=1, le=10**9)] | None = None

    source = read_document(path)
    document = validate(source, SweepDocument)
    try:
        return plan_of(
            models=_listed(document.models),
            clusters=_listed(document.clusters),
            workloads=[_workload(part.model_dump(exclude_none=True)) for part in document.workloads],
            budgets=[_budget(part.model_dump(exclude_none=True)) for part in document.budgets],
            frameworks=[None] if document.frameworks is None else _listed(document.frameworks),
            explorings=_explorings(document.per_stage, document.sampler, document.seeds, document.evaluations),
            switches={name: as_word(setting) for name, setting in document.switches.items()},
            objective=document.objective,
            top=document.top,
            overrides={axis: _listed(values) for axis, values in document.axes.items()},
            calibration=calibration,
            profile=profile,
        )
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None


def plan_of(
    *,
    models: Sequence[str],
    clusters: Sequence[str],
    workloads: Sequence[Mapping[str, Any]],
    budgets: Sequence[Mapping[str, Any]],
    frameworks: Sequence[str | None] = (None,),
    explorings: Sequence[Exploring | None] = (None,),
    **every: Any,
) -> SweepPlan:
    """Return the plan of a product; ``workloads``, ``budgets`` and ``every`` have fields of ``Request``.

    Impossible combinations (a precision that one cluster lacks) are detected by their search. ``explorings``: ways in
    which every combination is searched; None: the flat space. ``every``: fields of all searches.

    Raises
    ------
    RequestError
        A list is empty, a name unknown, or a search occurs twice.
    """
    lists: dict[str, Sequence[Any]] = {
        "models": models,
        "clusters": clusters,
        "workloads": workloads,
        "budgets": budgets,
        "frameworks": frameworks,
        "seeds": explorings,
    }
    _check_lists(lists)
    kinds = {name: kind_named(name) for name in models}
    objective = every.get("objective", DEFAULT_OBJECTIVE)
    for kind in kinds.values():
        kind.check(every.get("overrides", {}))
    if any(explorings) and any(kind is not TRANSFORMERS for kind in kinds.values()):
        raise RequestError("stages that differ are searched for transformers; leave sampler and per_stage away")
    if objective_named(objective).front and any(explorings):
        raise RequestError(f"a sampler looks for one objective, but got {objective}; leave sampler and per_stage away")
    networks = {name: kind.model(name) for name, kind in kinds.items()}
    machines = {name: resolve_cluster(name) for name in dict.fromkeys(clusters)}
    usual = {pair: kinds[pair[0]].usual(networks[pair[0]], machines[pair[1]]) for pair in product(networks, machines)}
    named = dict.fromkeys(name for framework in frameworks for name in ((framework,) if framework else usual.values()))
    software = {name: _software(name, kinds.values(), every.get("switches", {})) for name in named}
    contents = {("model", name): _digest(canonical(network)) for name, network in networks.items()}
    contents |= {("cluster", name): _digest(canonical(machine)) for name, machine in machines.items()}
    learned = _learned(every.get("calibration"), every.get("profile"))
    pieces: dict[str, SweepSearch] = {}
    for number, (model, cluster, workload, budget, framework, exploring) in enumerate(product(*lists.values())):
        framework = framework or usual[model, cluster]
        request = Request(model=model, cluster=cluster, framework=framework, **every, **workload, **budget)
        content = [contents["model", model], contents["cluster", cluster], cost_model_version()]
        profile_of_kind = software[framework].get(kinds[model])
        content += [] if profile_of_kind is None else [canonical(profile_of_kind)]
        ways = [canonical(exploring)] if exploring else []
        key = _digest([request.to_json(), *ways, *content, *learned])
        if key in pieces:
            raise RequestError(
                f"search {number + 1} of the plan is search {pieces[key].number + 1} again; name each entry once"
            )
        pieces[key] = SweepSearch(number=number, key=key, request=request, exploring=exploring)
    return SweepPlan(pieces=tuple(pieces.values()), objective=objective)


def _check_lists(lists: Mapping[str, Sequence[Any]]) -> None:
    """Check the lists of a product for errors that depend on neither a model nor a cluster."""
    for name, values in lists.items():
        if not values:
            raise RequestError(f"{name} must have at least one entry")
    count = math.prod(map(len, lists.values()))
    if count > MOST_PIECES:
        raise RequestError(f"a sweep has at most {MOST_PIECES:,} searches, but this one has {count:,}; split it")
    for workload in lists["workloads"]:
        if "seq_len" in workload and not isinstance(workload["global_batch"], PerDevice):
            Workload(**workload)
    for budget in lists["budgets"]:
        if "gpus" in budget:
            parse_budget(str(budget["gpus"]))


def _software(name: str, kinds: Iterable[AnyKind], switches: Mapping[str, str]) -> Mapping[AnyKind, Any]:
    """Return the software of a name from the kinds of models that support it (``ModelKind.software``)."""
    supported, refused = dict[AnyKind, Any](), list[RequestError]()
    for kind in dict.fromkeys(kinds):
        try:
            supported[kind] = kind.software(name, switches)
        except RequestError as error:
            refused.append(error)
    if not supported:
        raise refused[0]
    return supported


def _learned(calibration: str | None, profile: str | None) -> list[str]:
    """Return a hash of the contents of measured files; reading them detects wrong files early."""
    hashes = []
    if calibration is not None:
        from forerun.search.measured.calibrate import read_calibration

        hashes.append(f"calibration {read_calibration(Path(calibration)).digest}")
    if profile is not None:
        from forerun.search.measured.profiling import read_profile

        read_profile(Path(profile))
        hashes.append(f"profile {digest_of(Path(profile))}")
    return hashes


def canonical(value: Any) -> Any:
    """Return a value as plain data that is the same in every process.

    >>> canonical({"b": (1, 2.5), "a": {"y", "x"}})
    [['a', ['x', 'y']], ['b', [1, 2.5]]]

    Raises
    ------
    TypeError
        A part of the value has no such form.
    """
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [[field.name, canonical(getattr(value, field.name))] for field in dataclasses.fields(value)]
        return [type(value).__name__, *fields]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return [[canonical(key), canonical(value[key])] for key in sorted(value, key=str)]
    if isinstance(value, (frozenset, set)):
        return sorted((canonical(entry) for entry in value), key=str)
    if isinstance(value, (list, tuple)):
        return [canonical(entry) for entry in value]
    raise TypeError(f"{type(value).__name__} has no canonical form")


def _workload(fields: dict[str, Any]) -> dict[str, Any]:
    fields["global_batch"] = parse_batch(str(fields["global_batch"]))
    if isinstance(fields.get("tokens"), str):
        fields["tokens"] = parse_count(fields["tokens"])
    return {name: float(value) if name in ("tokens", "moe_imbalance") else value for name, value in fields.items()}


def _budget(fields: dict[str, Any]) -> dict[str, Any]:
    if not {"gpus", "usd_per_hour"} & set(fields):
        names = ", ".join(fields) or "is empty"
        raise RequestError(f"a budget names gpus, usd_per_hour or both, but one {'has only ' if fields else ''}{names}")
    readers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "gpus": ("gpus", str),
        "train_within": ("train_within_s", partial(with_unit, parse_seconds)),
        "oom_risk": ("oom_risk", parse_share),
        "goodput": ("goodput", str),
    }
    budget: dict[str, Any] = {}
    for name, value in fields.items():
        key, read = readers.get(name, (name, float))
        budget[key] = read(value)
    return budget


def _explorings(
    per_stage: list[str] | str | None, sampler: str | None, seeds: list[int] | int | None, evaluations: int | None
) -> list[Exploring | None]:
    """Return the ways in which every combination is searched."""
    if per_stage is None and sampler is None:
        if seeds is not None or evaluations is not None:
            raise RequestError("seeds and evaluations are for a sampler; add per_stage: [layers] or sampler: local")
        return [None]
    stages = ("layers",) if per_stage is None else tuple(_listed(per_stage))
    if evaluations is not None and evaluations < 1:
        raise RequestError(f"evaluations must be at least 1, but got {evaluations}")
    return [
        Exploring(sampler=sampler or "auto", per_stage=stages, seed=seed, evaluations=evaluations)
        for seed in (_listed(seeds) if seeds is not None else [0])
    ]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _digest(content: Iterable[Any]) -> str:
    text = json.dumps(list(content), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
