"""Export of launch files from a search on disk: one row in one format or in all."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search.board.folder import BOARD
from forerun.search.board.sweeps import read_search
from forerun.search.formats.contract import Files, Format, Launch
from forerun.search.formats.express import express, machine_facts, other_framework
from forerun.search.formats.job import NO_JOB, Job
from forerun.search.formats.table import format_named, writable
from forerun.search.request.graphs import graph_cluster
from forerun.search.request.quantities import document_tokens
from forerun.simulator import score
from forerun.spaces.clusters import grown, resolve_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import resolve_framework, switched
from forerun.spaces.frameworks.recipes import agreed
from forerun.spaces.models import resolve_model
from forerun.spaces.models.tuning import frozen_parts, tuned
from forerun.spaces.opgraph import GraphModel
from forerun.spaces.opgraph.mixture import is_mixture
from forerun.spaces.opgraph.resolve import resolve_graph_model
from forerun.spaces.opgraph.split import Mode, parse_split
from forerun.spaces.strategies import Context, Software, Strategy, parse_strategy, table_of
from forerun.spaces.units import format_seconds
from forerun.spaces.workload import Workload

ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Files by format, reasons for refused formats, and notes on written ones."""

    files: Mapping[str, Files]
    refused: Mapping[str, str]
    notes: Mapping[str, str]


def load_launch(run: Path, rank: int, search: int | None = None) -> tuple[Launch, Context | None]:
    """Return row ``rank`` of the leaderboard in a folder of ``forerun search --out``, and its context.

    The context is None for an operator graph, whose formats have no framework laws. ``search``: number of a search in a
    sweep's folder.

    Raises
    ------
    RequestError
        The folder has no leaderboard or row, or its model or cluster is unavailable.
    """
    of = "" if search is None else f"search {search} of "
    return launch_in(read_search(run, search), rank, name=f"{of}{run.resolve().name}", source=run / BOARD)


def launch_in(data: Mapping[str, Any], rank: int, *, name: str, source: Path) -> tuple[Launch, Context | None]:
    """Return row ``rank`` of a leaderboard as a document, and its context.

    ``name``: name of the search, ``source``: its place for messages.

    Raises
    ------
    RequestError
        See ``load_launch``.
    """
    try:
        request, rows = data["request"], data["leaderboard"]
        if not 1 <= rank <= len(rows):
            raise RequestError(f"{source.parent} has ranks 1 to {len(rows)}, but got --rank {rank}")
        if "modes" in request:
            return graph_launch(request, rows[rank - 1], name=f"rank {rank} of {name}"), None
        strategy, documents = parse_strategy(str(rows[rank - 1]["strategy"])), request.get("document_tokens")
        if documents is None and request.get("documents") is not None:  # a board of an earlier version
            documents = document_tokens(str(request["documents"]), int(request["seq_len"]))
        workload = Workload(
            global_batch=int(request["global_batch"]),
            seq_len=int(request["seq_len"]),
            precision=str(rows[rank - 1].get("precision") or request["precision"]),
            moe_imbalance=float(request.get("moe_imbalance") or 1.0),
            document_tokens=documents,
        )
        lora, frozen = request.get("lora"), frozen_parts(request.get("freeze"))
        named = {part: str(request[part]) for part in ("model", "cluster", "framework")}
        switches = {str(name): str(setting) for name, setting in request.get("switches", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise RequestError(f"{source} is not a leaderboard that forerun wrote: {reason}") from None
    model, cluster = tuned(resolve_model(named["model"]).model, lora, frozen), resolve_cluster(named["cluster"])
    cluster = grown(cluster, strategy.devices)
    framework = switched(resolve_framework(named["framework"]), switches)
    framework, _ = agreed(framework, workload.precision, switches)
    context = Context(model=model, cluster=cluster, workload=workload, framework=framework)
    launch = Launch(
        strategy=strategy,
        model=model,
        workload=workload,
        **machine_facts(cluster),
        name=f"{model.name} rank {rank} of {name}",
    )
    return launch, context


def graph_launch(request: Mapping[str, Any], row: Mapping[str, Any], *, name: str) -> Launch:
    """Return the launch of a row of an operator graph: its devices as replicas, its segments as microbatches.

    Raises
    ------
    RequestError
        Its split is not data parallel, or the model or cluster is unavailable.
    """
    text = str(row["strategy"])
    split = None if is_mixture(text) else parse_split(text)
    if split is None or split.mode is not Mode.DATA or split.mixed or split.spread:
        devices = int(row["gpus"])
        raise RequestError(f"launch files split samples alone, but {name} is {text}; nearest: data{devices}")
    model = resolve_graph_model(str(request["model"]), allow_generic=True, shapes=request.get("shapes") or ())[0]
    batch = int(row["global_batch"])
    return Launch(
        strategy=Strategy(dp=split.replicas, mbs=batch // split.replicas // split.segments),
        model=model,
        workload=Workload(global_batch=batch, seq_len=1, precision=str(request["precision"])),
        **machine_facts(graph_cluster(str(request["cluster"]))),
        name=f"{model.name} {name}",
    )


def export(launch: Launch, context: Context | None, name: str, job: Job = NO_JOB) -> Export:
    """Return the files of a launch in format ``name``, or in ``all`` that can express it.

    Each format has a subfolder of the ``job``.

    Raises
    ------
    RequestError
        The format is unknown or refuses the launch.
    """
    if name != ALL:
        item, launch = format_named(name), dataclasses.replace(launch, job=job)
        files = {item.name: express(item, launch, context)}
        return Export(files=files, refused={}, notes=_notes(launch, context, [item]))
    files = {}
    refused: dict[str, str] = {}
    for item in writable():
        folder = job.folder and f"{job.folder}/{item.name}"
        launch = dataclasses.replace(launch, job=dataclasses.replace(job, folder=folder))
        try:
            files[item.name] = express(item, launch, context)
        except RequestError as error:
            refused[item.name] = str(error)
    return Export(files=files, refused=refused, notes=_notes(launch, context, [format_named(one) for one in files]))


def _notes(launch: Launch, context: Context | None, items: Sequence[Format]) -> dict[str, str]:
    """Return notes by format on running another framework than the searched one, with its predicted step."""
    notes: dict[str, str] = {}
    for item in items:
        substitute = None if context is None else other_framework(item, launch, context)
        if context is None or substitute is None:
            continue
        strategy = dataclasses.replace(launch.strategy, software=Software.NONE)
        step_s = float(score(substitute, table_of([strategy])).step_time_s[0])
        notes[item.name] = (
            f"{item.name} runs {substitute.framework.name}, and {context.framework.name} was searched: "
            f"{format_seconds(step_s)} a step is predicted there; search with --framework {substitute.framework.name}"
        )
    return notes


def describe(launch: Launch) -> dict[str, Any]:
    """Return the launch as plain data."""
    return {
        "strategy": str(launch.strategy),
        "model": launch.model.name,
        "gpus": launch.strategy.devices,
        "nodes": launch.nodes,
        "global_batch": launch.workload.global_batch,
        **({} if isinstance(launch.model, GraphModel) else {"seq_len": launch.workload.seq_len}),
        "precision": launch.workload.precision,
    }
