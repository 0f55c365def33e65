"""Throughput against workers: the request of ``forerun scale`` and its answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.search.scale.changes import ScaleChange, changes, limited_by
from forerun.search.scale.options import check_used, fidelity_of, worker_counts
from forerun.simulator.events.step.disturb import Disturbance
from forerun.simulator.modes import (
    MODES,
    Curve,
    GradientProfile,
    ModeNetwork,
    ModePrediction,
    NicNetwork,
    TrainingMode,
    throughput_curve,
)
from forerun.simulator.modes.curve import Fidelity
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.opgraph.profile import GraphProfile, graph_profile_names, load_graph_profile
from forerun.spaces.units import format_rate, format_seconds

if TYPE_CHECKING:
    from forerun.spaces.clusters import Cluster

DEFAULT_MODE = "all-reduce"
DEFAULT_WORKERS = "1..32"
DEFAULT_BATCH = 32
DEFAULT_FRAMEWORK = "pytorch-ddp"
TRANSFORMER_FRAMEWORK = "megatron-lm"
_OF_MODELS = (
    ("batch", "--batch"),
    ("precision", "--precision"),
    ("framework", "--framework"),
    ("seq_len", "--seq-len"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleRequest:
    """Fields of the user's request; None for fields left to defaults.

    ``model`` is a catalogue name or a profile's file.
    """

    model: str
    cluster: str | None = None
    workers: str | None = None
    mode: str | None = None
    batch: int | None = None
    seq_len: int | None = None
    precision: str | None = None
    framework: str | None = None
    step_time_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    server_bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None
    slow: Mapping[int, float] = field(default_factory=dict)
    jitter: float | None = None
    seed: int = 0
    fidelity: Fidelity | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """The answer: a curve, its inputs, and every default."""

    request: ScaleRequest
    profile: GradientProfile
    mode: TrainingMode
    network: ModeNetwork
    curve: Curve
    jitter: float
    defaults: tuple[str, ...]

    def changes(self) -> tuple[ScaleChange, ...]:
        """Return the gain of each change of the curve's largest run, largest first."""
        mode = replace(self.mode, workers=self.curve.points[-1].workers)
        noise = Disturbance(seed=self.request.seed, jitter=self.jitter, slow=self.request.slow)
        return changes(self.profile, mode, self.network, noise)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        mode, network = self.mode, self.network
        helpful = self.changes()
        servers = {} if mode.exchange == "all-reduce" else {"shards": mode.shards, "colocated": mode.colocated}
        return {
            "schema": 1,
            "model": self.profile.name,
            "mode": mode.name,
            **servers,
            "policy": mode.policy,
            "overlap": mode.overlap,
            "backup_workers": mode.backup_workers,
            "batch_per_worker": self.profile.batch,
            "one_worker": {
                "step_time_s": self.profile.step_s,
                "forward_s": self.profile.forward_s,
                "backward_s": self.profile.backward_s,
                "update_s": self.profile.update_s,
                "parameter_bytes": self.profile.total_bytes,
            },
            "network": {
                "worker_bytes_per_s": network.worker_bytes_per_s,
                "server_bytes_per_s": network.server_bytes_per_s,
                "latency_s": network.latency_s,
            },
            "slow": {str(worker): factor for worker, factor in self.request.slow.items()},
            "jitter": self.jitter,
            **self.curve.to_json(),
            "limited_by": limited_by(helpful),
            "changes": [change.to_json() for change in helpful],
            "defaults": list(self.defaults),
        }


def scale(request: ScaleRequest) -> Scaling:
    """Return the throughput of every requested number of workers.

    Raises:
        RequestError: a part of the request is unknown, out of range or contradicts another.
    """
    defaults: list[str] = []
    mode_name = request.mode or _filled(defaults, "mode", DEFAULT_MODE)
    if mode_name not in MODES:
        raise unknown("training mode", mode_name, MODES)
    cluster = _cluster(request)
    profile = _profile(request, cluster, defaults)
    rules = _rules(request)
    core = _core(request, profile)
    if core is not None:
        # One worker has the core's step, so that results from its profile agree with the core.
        profile = profile.lasting(core(1).step_s)
    network = _network(request, cluster, rules, defaults)
    text = request.workers or _filled(defaults, "workers", DEFAULT_WORKERS)
    counts = worker_counts(text)
    if request.seed < 0:
        raise RequestError(f"a seed is at least 0, but got {request.seed}")
    exchange, synchronous = MODES[mode_name]
    check_used(exchange, request.settings, request.server_bandwidth_bytes_per_s)
    settings = {**_exchange_of(rules), **request.settings}
    settings["overlap"] = settings.get("overlap", True) and rules.overlap > 0
    if not (exchange == "parameter-server" and settings.get("colocated")):
        backups = settings.get("backup_workers", 0)
        if request.workers is None:
            counts = [n for n in counts if n > backups]
            if not counts:
                raise RequestError(f"{backups} backup workers leave none of {text} workers; name more with --workers")
    mode = TrainingMode(exchange=exchange, synchronous=synchronous, workers=max(counts), **settings)  # type: ignore[arg-type]
    fidelity = fidelity_of(request.fidelity, profile, mode, network, counts, defaults)
    # The core of transformers has no jitter; its answer equals `forerun simulate`.
    jitter = 0.0 if core is not None else _jitter(request, profile, cluster, rules, defaults)
    noise = Disturbance(seed=request.seed, jitter=jitter, slow=request.slow)
    if noise.slow and max(noise.slow) >= min(counts):
        raise RequestError(
            f"slow worker {max(noise.slow)} is in no run of {min(counts)} workers; use 0 to {min(counts) - 1}, "
            f"or begin --workers at {max(noise.slow) + 1}"
        )
    curve = throughput_curve(profile, mode, network, counts, noise, fidelity=fidelity, core=core)
    return Scaling(
        request=request,
        profile=profile,
        mode=mode,
        network=network,
        curve=curve,
        jitter=jitter,
        defaults=tuple(defaults),
    )


def _filled(defaults: list[str], name: str, value: str) -> str:
    defaults.append(f"{name} {value}")
    return value


def _cluster(request: ScaleRequest) -> "Cluster | None":
    if request.cluster is None:
        return None
    from forerun.spaces.clusters import resolve_cluster

    return resolve_cluster(request.cluster)


def _profile(request: ScaleRequest, cluster: "Cluster | None", defaults: list[str]) -> GradientProfile:
    """Return the profile of a file, or of a model of the catalogue on the cluster's device."""
    if _is_file(request.model):
        from forerun.search.scale.profile import read_profile

        for name, flag in _OF_MODELS:
            if getattr(request, name) is not None:
                raise RequestError(f"{flag} belongs to models of the catalogue; {request.model} is a measured profile")
        profile = read_profile(Path(request.model))
    else:
        profile = _catalogued(request, cluster, defaults)
    return profile if request.step_time_s is None else profile.lasting(request.step_time_s)


def _catalogued(request: ScaleRequest, cluster: "Cluster | None", defaults: list[str]) -> GradientProfile:
    """Return the profile of a model of the catalogue, or of a transformer's file."""
    from forerun.spaces.opgraph import is_graph_model

    if cluster is None:
        raise RequestError(f"the times of {request.model} depend on the device; add --cluster (`list clusters`)")
    batch = request.batch or int(_filled(defaults, "batch per worker", str(DEFAULT_BATCH)))
    if not is_graph_model(request.model):
        return _transformer(request, cluster, batch, defaults)
    if request.seq_len is not None:
        raise RequestError(f"--seq-len belongs to transformers; {request.model} has none")
    from forerun.simulator.modes.model_profiles import graph_profile
    from forerun.simulator.opgraph import GraphContext
    from forerun.spaces.opgraph import load_graph_model
    from forerun.spaces.opgraph.profile import default_precision

    precision = request.precision or _filled(defaults, "precision", default_precision(cluster.device))
    framework = request.framework or _filled(defaults, "framework", DEFAULT_FRAMEWORK)
    context = GraphContext(
        model=load_graph_model(request.model),
        cluster=cluster,
        profile=load_graph_profile(framework),
        precision=precision,
    )
    return graph_profile(context, batch)


def _transformer(request: ScaleRequest, cluster: "Cluster", batch: int, defaults: list[str]) -> GradientProfile:
    from forerun.simulator.modes.model_profiles import transformer_profile
    from forerun.spaces.frameworks import load_framework
    from forerun.spaces.models import resolve_model
    from forerun.spaces.opgraph import graph_model_names
    from forerun.spaces.strategies import Context
    from forerun.spaces.workload import Workload

    try:
        model = resolve_model(request.model).model
    except RequestError as error:
        names = ", ".join(graph_model_names())
        raise RequestError(f"{error}; operator graphs: {names}; or the file of a gradient profile") from None
    if request.seq_len is None:
        raise RequestError(f"a step of {request.model} depends on the tokens per sequence; add --seq-len")
    workload = Workload(
        global_batch=batch,
        seq_len=request.seq_len,
        precision=request.precision or _filled(defaults, "precision", cluster.device.usual_precision),
    )
    framework = load_framework(request.framework or _filled(defaults, "framework", TRANSFORMER_FRAMEWORK))
    return transformer_profile(Context(model=model, cluster=cluster, workload=workload, framework=framework), batch)


def _is_file(model: str) -> bool:
    """Whether a model is the file of a measured profile."""
    return Path(model).suffix.lower() in (".yaml", ".yml", ".json")


def _core(request: ScaleRequest, profile: GradientProfile) -> Callable[[int], ModePrediction] | None:
    """Return the closed forms of a catalogued transformer if they cover the request: no servers, equal workers, and the
    framework's exchange.
    """
    from forerun.spaces.opgraph import is_graph_model

    if _is_file(request.model) or is_graph_model(request.model) or request.seq_len is None:
        return None
    if request.mode not in (None, "all-reduce") or request.bandwidth_bytes_per_s is not None or request.slow:
        return None
    if request.step_time_s is not None or request.jitter or "bucket_bytes" in request.settings:
        return None
    if not request.settings.get("overlap", True):
        return None
    from forerun.search.scale.transformers import core_steps

    training = {
        "model": request.model,
        "cluster": request.cluster or "",
        "seq_len": request.seq_len,
        "precision": request.precision,
        "framework": request.framework or TRANSFORMER_FRAMEWORK,
    }
    return core_steps(int(profile.batch), training)


def _rules(request: ScaleRequest) -> GraphProfile:
    """Return the software's exchange of gradients; transformers and measured profiles use DDP's."""
    name = request.framework or DEFAULT_FRAMEWORK
    return load_graph_profile(name if name in graph_profile_names() else DEFAULT_FRAMEWORK)


def _exchange_of(rules: GraphProfile) -> dict[str, Any]:
    """Return the buckets of a framework as settings of a mode."""
    return {
        "bucket_bytes": rules.bucket_bytes,
        "first_bucket_bytes": rules.first_bucket_bytes,
        "strict_buckets": rules.strict_buckets,
    }


def _network(request: ScaleRequest, cluster: "Cluster | None", rules: GraphProfile, defaults: list[str]) -> ModeNetwork:
    """Return the cluster's network, or NICs of the given rate in its place."""
    rate = request.bandwidth_bytes_per_s
    if rate is None:
        if cluster is None:
            raise RequestError("the network is not known; add --cluster or --bandwidth, like --bandwidth 10Gb/s")
        if request.server_bandwidth_bytes_per_s is not None or request.latency_s is not None:
            raise RequestError(
                "--servers bandwidth and --latency go with --bandwidth: they describe NICs, not a cluster"
            )
        from forerun.simulator.modes.network import ClusterNetwork

        return ClusterNetwork(cluster=cluster, rules=rules)
    server = request.server_bandwidth_bytes_per_s
    if server is None:
        server = rate
        if request.mode not in (None, "all-reduce"):
            defaults.append(f"server bandwidth {format_rate(rate)}")
    latency_s = request.latency_s
    if latency_s is None:
        latency_s = 0.0
        defaults.append(f"latency {format_seconds(0.0)}")
    return NicNetwork(worker_bytes_per_s=rate, server_bytes_per_s=server, latency_s=latency_s)


def _jitter(
    request: ScaleRequest,
    profile: GradientProfile,
    cluster: "Cluster | None",
    rules: GraphProfile,
    defaults: list[str],
) -> float:
    """Return the requested jitter, by default the framework's on a cluster and 0 on given NICs."""
    if request.jitter is not None:
        return request.jitter
    if cluster is None or request.bandwidth_bytes_per_s is not None or profile.step_factors:
        return 0.0
    _filled(defaults, "jitter", f"{rules.jitter:g}")
    return rules.jitter
