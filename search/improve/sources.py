"""Sources of the step to improve: traces of a run, or a model on a cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.simulator.improve import RULES, BucketRule, RankStep, ServerWire, rule_of, rule_plan
from forerun.simulator.improve.step import StepPlan
from forerun.spaces.errors import RequestError
from forerun.spaces.units import format_seconds

if TYPE_CHECKING:
    from forerun.search.request.request import Request
    from forerun.search.request.setting import Setting
    from forerun.simulator.opgraph import GraphContext
    from forerun.simulator.replay import Analysis
    from forerun.simulator.replay.readers.reading import Reading

_WORTH = 0.002
"""Smallest gain, as a share of a step, of a listed strategy."""
_SHOWN = 3
_SERVER_START_S = 50e-6
"""Latency of a push or a pull: a TCP round trip in one data centre, as in the training modes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Another strategy for the same training, and its saving per step."""

    name: str
    what: str
    saves_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ImproveSource:
    """A step to improve. ``rule``: the framework's filling of buckets; ``plan``: the default plan, or the plan of the
    run (None: by ``rule``); ``alternatives``: faster strategies; ``analysis``: analysis of a run; ``notes``: remarks
    for the user."""

    step: RankStep
    rule: BucketRule = RULES["ddp"]
    plan: StepPlan | None = None
    alternatives: tuple[Alternative, ...] = ()
    analysis: "Analysis | None" = None
    notes: tuple[str, ...] = ()


def trace_source(
    paths: Sequence[Path], reading: "Reading | None" = None, *, link_bytes_per_s: float | None = None
) -> ImproveSource:
    """Return the step of a run, with the nominal rate of a rank's link if known.

    Raises:
        RequestError: errors of ``analyse_files`` and ``replayed_step``.
    """
    from forerun.simulator.improve.from_replay import replayed_step
    from forerun.simulator.replay import analyse_files

    analysis = analyse_files(paths, reading=reading)
    step = replayed_step(analysis, link_bytes_per_s=link_bytes_per_s)
    notes = [f"operators of rank {step.rank}, which computes most; all ranks are taken to be like it"]
    if step.rest_s > _WORTH * step.measured_s:
        notes.append(
            f"{format_seconds(step.rest_s)} of a step are waits for other ranks and what varies from step to step: "
            "taken to stay"
        )
    if not step.split:
        notes.append("the traces do not show the gradients of a bucket: buckets can be joined, not split")
    if not step.latency_known:
        notes.append(
            "all buckets of the run have one size, so that the latency of a message is unknown: taken as what a "
            "network of 1 Gb/s would not need of it"
        )
    return ImproveSource(step=step.step, plan=step.plan, analysis=analysis, notes=tuple(notes))


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
    profile: str | None = None,
    calibration: str | None = None,
    server_bytes_per_s: float | None = None,
) -> ImproveSource:
    """Return the data-parallel step of a model: ``batch`` samples (sequences) per device on ``gpus`` devices.

    ``framework``: pytorch-ddp, horovod, ... for operator graphs; a framework profile for transformers. ``profile``,
    ``calibration``: files of a machine. ``server_bytes_per_s``: rate of parameter servers per worker and direction.

    Raises:
        RequestError: the request is wrong.
    """
    from forerun.search.request.request import Request
    from forerun.spaces.opgraph.resolve import names_graph_model

    if gpus < 2:
        raise RequestError(f"gradients are exchanged between replicas, but got --gpus {gpus}; use 2 or more")
    if names_graph_model(model):
        if strategy is not None:
            raise RequestError("--strategy is for transformers; operator graphs are improved data-parallel")
        if seq_len is not None:
            raise RequestError(f"--seq-len is for transformers, and {model} is an operator graph")
    elif seq_len is None:
        raise RequestError(f"{model} reads sequences: say how long they are with --seq-len")
    request = Request(
        model=model,
        cluster=cluster,
        global_batch=gpus * batch,
        seq_len=seq_len,
        gpus=str(gpus),
        precision=precision,
        framework=framework,
        profile=profile,
        calibration=calibration,
    )
    if seq_len is None:
        source = _graph(request, gpus, batch)
    else:
        source = _transformer(request, strategy or f"dp{gpus} mbs{batch}")
    if server_bytes_per_s is None:
        return source
    wire = ServerWire(
        push_s=_SERVER_START_S,
        pull_s=_SERVER_START_S,
        push_bytes_per_s=server_bytes_per_s,
        pull_bytes_per_s=server_bytes_per_s,
    )
    return replace(source, step=replace(source.step, wire=wire))


def _graph(request: "Request", gpus: int, batch: int) -> ImproveSource:
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import of_operator_graph
    from forerun.simulator.improve.from_prediction import graph_step

    setting = of_operator_graph(resolve(request))
    step = graph_step(setting.context, ranks=gpus, batch=batch)
    rule = rule_of(setting.context.profile)
    # A framework that exchanges gradients after the backward pass does so by default, for any buckets.
    plan = None if setting.context.profile.overlap else replace(rule_plan(step, rule), overlap=False)
    note = "savings of fused operators are estimated: the tensor between them is neither written nor read"
    alternatives = (*_other_precisions(request, step, rule, gpus, batch), *_other_splits(setting))
    notes = (note, *_calibrated(request), *setting.remarks())
    return ImproveSource(step=step, rule=rule, plan=plan, alternatives=alternatives, notes=notes)


def _calibrated(request: "Request") -> tuple[str, ...]:
    """Return the parts of a calibration that are not used."""
    if request.calibration is None:
        return ()
    return ("of the calibration, its constants count here; what only alike strategies have in common does not",)


def _other_precisions(
    request: "Request", step: RankStep, rule: BucketRule, gpus: int, batch: int
) -> tuple[Alternative, ...]:
    """Return the saving of 16-bit mixed precision if the device supports it; gradients stay in fp32."""
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import of_operator_graph
    from forerun.simulator.improve import simulate
    from forerun.simulator.improve.from_prediction import graph_step

    before_s = simulate(step, rule_plan(step, rule)).step_s
    precisions = []
    for precision in ("bf16", "fp16"):
        try:
            setting = of_operator_graph(resolve(replace(request, precision=precision)))
        except RequestError:
            continue  # the device does not support it
        other = graph_step(setting.context, ranks=gpus, batch=batch)
        saves_s = before_s - simulate(other, rule_plan(other, rule)).step_s
        if saves_s > _WORTH * before_s:
            precisions.append(Alternative(name="mixed precision", what=precision, saves_s=saves_s))
    return tuple(precisions)


def _other_splits(setting: "Setting[GraphContext]") -> tuple[Alternative, ...]:
    """Return the best split of every family that is faster than data-parallel training."""
    from forerun.search.answer.searches import search_request

    best = {row.graph.family: row for row in search_request(setting).families}
    data = best.pop("data", None)
    if data is None:
        return ()
    faster = [row for row in best.values() if row.step_time_s < data.step_time_s * (1 - _WORTH)]
    return tuple(
        Alternative(name="split", what=row.name, saves_s=data.step_time_s - row.step_time_s)
        for row in sorted(faster, key=lambda row: row.step_time_s)[:_SHOWN]
    )


def _transformer(request: "Request", text: str) -> ImproveSource:
    from forerun.search.answer.explain.explain import explain_strategy
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import legal_strategy, of_transformer
    from forerun.simulator import score
    from forerun.simulator.improve.from_prediction import strategy_step

    setting = of_transformer(resolve(request))
    legal = legal_strategy(setting, text)
    better = explain_strategy(setting.context, legal, usd_per_gpu_hour=setting.usd_per_gpu_hour, score=score)
    step = strategy_step(setting.context, legal)
    alternatives = tuple(
        Alternative(name=one.axis, what=one.words, saves_s=-one.added_s) for one in better.helping(_SHOWN)
    )
    row = better.row
    full = (
        f"{legal} does not fit: it needs {row.peak_memory_gib:.1f} of {row.memory_limit_gib:.1f} GiB; name a "
        "--strategy that does (forerun search --set pp=1 --set zero=0,1)"
    )
    notes = (*(() if row.fits else (full,)), *_calibrated(request), *setting.remarks())
    return ImproveSource(step=step, alternatives=alternatives, notes=notes)
