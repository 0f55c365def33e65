"""Where the step that is improved comes from: traces of a run, or a model on a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.simulator.improve import ServerWire, Step
from forerun.simulator.improve.step import Plan
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.explain import ScoredChange
    from forerun.simulator.replay import Analysis
    from forerun.simulator.replay.readers.reading import Reading

_SERVER_START_S = 50e-6
"""Start of a push or a pull: a round trip over TCP in one room, as the training modes take it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A step to improve. ``plan``: what the run itself did (None: the framework's default); ``strategies``: other
    strategies that would be faster; ``analysis``: of a run; ``notes``: what the user should know."""

    step: Step
    plan: Plan | None = None
    strategies: tuple["ScoredChange", ...] = ()
    analysis: "Analysis | None" = None
    notes: tuple[str, ...] = ()


def trace_source(paths: Sequence[Path], reading: "Reading | None" = None) -> Source:
    """Return the step of a run.

    Raises:
        RequestError: as for ``analyse_files`` and ``replayed_step``.
    """
    from forerun.simulator.improve.from_replay import replayed_step
    from forerun.simulator.replay import analyse_files

    analysis = analyse_files(paths, reading=reading)
    found = replayed_step(analysis)
    notes = [f"operators of rank {found.rank}, which computes most; all ranks are taken to be like it"]
    if not found.split:
        notes.append("the traces do not tell gradients within a bucket: buckets can be joined, not split")
    return Source(step=found.step, plan=found.plan, analysis=analysis, notes=tuple(notes))


def model_source(
    model: str,
    *,
    cluster: str,
    gpus: int,
    batch: int,
    seq_len: int | None = None,
    precision: str | None = None,
    framework: str | None = None,
    strategy: str | None = None,
    server_bytes_per_s: float | None = None,
) -> Source:
    """Return the data-parallel step of a model: ``batch`` samples (sequences) per device on ``gpus`` devices.

    ``framework``: of layer-by-layer models pytorch-ddp, horovod, ...; of transformers a framework profile.
    ``server_bytes_per_s``: gradients go through servers at this rate per worker and direction.

    Raises:
        RequestError: the request is wrong.
    """
    from forerun.spaces.layered import is_layered

    if gpus < 2:
        raise RequestError(f"gradients are exchanged between replicas, but got --gpus {gpus}; use 2 or more")
    if is_layered(model):
        if strategy is not None:
            raise RequestError("--strategy is for transformers; layer-by-layer models are improved data-parallel")
        source = _layered(model, cluster, gpus, batch, precision or "fp32", framework or "pytorch-ddp")
    else:
        source = _transformer(model, cluster, gpus, batch, seq_len, precision, framework, strategy)
    if server_bytes_per_s is None:
        return source
    wire = ServerWire(
        push_s=_SERVER_START_S,
        pull_s=_SERVER_START_S,
        push_bytes_per_s=server_bytes_per_s,
        pull_bytes_per_s=server_bytes_per_s,
    )
    return replace(source, step=replace(source.step, wire=wire))


def _layered(model: str, cluster: str, gpus: int, batch: int, precision: str, framework: str) -> Source:
    from forerun.simulator.improve.from_layered import layered_step
    from forerun.simulator.layered.context import LayeredContext
    from forerun.spaces.clusters import resolve_cluster
    from forerun.spaces.layered import load_layered
    from forerun.spaces.layered.profile import load_layered_profile

    context = LayeredContext(
        model=load_layered(model),
        cluster=resolve_cluster(cluster),
        profile=load_layered_profile(framework),
        precision=precision,
    )
    if gpus > context.cluster.max_devices:
        raise RequestError(f"{cluster} has at most {context.cluster.max_devices} devices, but got --gpus {gpus}")
    note = "savings of fused operators are estimated: the tensor between them is neither written nor read"
    return Source(step=layered_step(context, ranks=gpus, batch=batch), notes=(note,))


def _transformer(
    model: str,
    cluster: str,
    gpus: int,
    batch: int,
    seq_len: int | None,
    precision: str | None,
    framework: str | None,
    strategy: str | None,
) -> Source:
    from forerun.search.explain import explain_strategy
    from forerun.search.request import DEFAULT_OBJECTIVE, DEFAULT_TOP, Request, legal_strategy, resolve
    from forerun.simulator import score
    from forerun.simulator.improve.from_strategy import strategy_step

    if seq_len is None:
        raise RequestError(f"{model} reads sequences: say how long they are with --seq-len")
    text = strategy or f"dp{gpus} mbs{batch}"
    setting = resolve(
        Request(
            model=model,
            cluster=cluster,
            global_batch=gpus * batch,
            seq_len=seq_len,
            gpus=str(gpus),
            precision=precision,
            framework=framework,
            objective=DEFAULT_OBJECTIVE,
            top=DEFAULT_TOP,
        )
    )
    legal = legal_strategy(setting, text)
    better = explain_strategy(setting.context, legal, usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)
    step = strategy_step(setting.context, legal)
    return Source(step=step, strategies=better.helping(), notes=tuple(setting.remarks()))
