"""Rows of measured runs -> runs that forerun can predict, or counted reasons for skipping them.

Rules that fill blanks are listed in ``runs.RULES`` and recorded with every run. Facts about frameworks, models and
machines are data (``vocabulary``); no code names a source.
"""

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from forerun.search.measured.validate.cells import Filled, Skip, integer, required
from forerun.search.measured.validate.columns import MEMORY_KINDS, TableRow, measured, read_rows
from forerun.search.measured.validate.facts import Facts, facts_of
from forerun.search.measured.validate.graphs import graph_context_of, graph_named, split_of
from forerun.search.measured.validate.machines import cluster_of
from forerun.search.measured.validate.runs import RULES, MeasuredRun, RunSet, Skipped
from forerun.search.measured.validate.shapes import model_of
from forerun.search.measured.validate.software import SOFTWARE_COLUMNS, defaults_of, profile_of
from forerun.search.measured.validate.strategies import strategy_of
from forerun.search.measured.validate.vocabulary import bare, first, table
from forerun.simulator import score
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.models import train_flops_per_sequence
from forerun.spaces.models.model import MixtureOfExperts, Model
from forerun.spaces.models.tuning import tuned
from forerun.spaces.strategies import Context, Recompute, Strategy, parse_named, table_of
from forerun.spaces.workload import PRECISIONS, Workload

GIB = 2.0**30
FOUR_BIT = ("nvfp4", "fp4")
SLOW_HOST_LINK = 100e9
"""Bytes per second (PCIe 6): with Grace hosts, 225e9 and more, states and activations can be offloaded cheaply."""
LEAST_FIRST = ("none", "selective", "full")
"""Recompute settings in the order of repeated work."""

USUAL_RANK = "16"
"""Rank of adapters without a stated rank; their products are small, so that the rank hardly matters."""
_ADAPTERS = re.compile(r"\bLoRA\b", re.IGNORECASE)

T = TypeVar("T")


def load_runs(files: Iterable[Path | str], *, graphs: bool = False, assumed: bool = False) -> RunSet:
    """Read tables of measured runs (columns: ``docs/measured-runs.md``) and map every row.

    ``graphs``: include runs of operator graphs; constants of the catalogue are fitted to transformers. ``assumed``:
    include runs whose strategy, or balance of experts, is assumed and not published; they are no evidence.

    Raises:
        RequestError: a file is not a table of runs; the text names file, line and column.
    """
    rows = read_rows([Path(file) for file in files])
    pool = _Pool()
    runs: list[MeasuredRun] = []
    skipped: list[Skipped] = []
    measured_rows: dict[str, int] = {}
    for row in rows:
        table_name = row["run_id"].rpartition("-")[0] or row.path.stem
        if row["outcome"] == "ok" and measured(row, "step_time_s") is not None:
            measured_rows[table_name] = measured_rows.get(table_name, 0) + 1
        try:
            runs.append(_run(row, table_name, pool, graphs=graphs, assumed=assumed))
        except (Skip, RequestError) as reason:  # a contradictory row is skipped without the rest of the table
            skipped.append(Skipped(run_id=row["run_id"], file=table_name, reason=str(reason)))
    return RunSet(runs=tuple(runs), skipped=tuple(skipped), measured=measured_rows)


class _Pool:
    """Interning of equal contexts, so that runs can be grouped by identity."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, object] = {}

    def one(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the object of a key, created on first use."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]  # type: ignore[return-value]  # a key is used with one kind of object


def _run(row: TableRow, table_name: str, pool: _Pool, *, graphs: bool, assumed: bool) -> MeasuredRun:
    """Map one row.

    Raises:
        Skip: the row cannot be expressed.
    """
    step_time_s, peak_gib = measured(row, "step_time_s"), measured(row, "peak_mem_gib")
    _expressible(row, step_time_s, peak_gib)
    kind = _memory_kind(row)
    filled = Filled()
    for rule in (*row.assumed, *_assumptions(row, allowed=assumed)):
        filled.of(rule, None)
    facts = facts_of(row, integer(row, "layers"), integer(row, "pp"))
    graph = graph_named(row["model"])
    if graph is not None:
        if not graphs:
            raise Skip("not a transformer")
        on = graph_context_of(row, graph, cluster_of(row, facts, filled), filled)
        shared = pool.one((graph, id(on.cluster), on.profile.name, on.precision, on.global_batch), lambda: on)
        return _made(row, table_name, shared, split_of(row, shared), filled, kind or facts.memory_kind)
    model = _tuned(row, model_of(row, facts, filled), filled)
    cluster = cluster_of(row, facts, filled)
    context = _context(row, facts, model, cluster, pool, filled)
    strategy = strategy_of(row, facts, context.framework, model, filled, defaults_of(row))
    if facts.checkpoints_some and strategy.recompute == Recompute.FULL and not strategy.recompute_layers:
        strategy = filled.of("recompute_layers", _fewest_recomputed(context, strategy))
    elif (
        "recompute" in filled.codes
        and strategy.recompute == Recompute.NONE
        and row["outcome"] == "ok"
        and peak_gib is None
    ):
        strategy = _least_recompute(context, strategy)
    _possible(context, strategy, step_time_s, pool)
    if peak_gib is not None and kind is None and facts.memory_kind is None:
        filled.of("memory_kind", None)
    strategy = pool.one(strategy, lambda: strategy)
    return _made(row, table_name, context, strategy, filled, kind or facts.memory_kind, facts.memory_of_first)


def _tuned(row: TableRow, model: Model, filled: Filled) -> Model:
    """Return a model with the adapters of a row's column, or with the usual rank if the text mentions adapters."""
    lora = row["lora"] or None
    if lora is None and _ADAPTERS.search(f"{row['source']}; {row['notes']}; {row['model']}"):
        lora = filled.of("lora", USUAL_RANK)
    return model if lora is None else _adapted(model, lora)


@cache
def _adapted(model: Model, lora: str) -> Model:
    """Return a model with adapters, equal ones as the same object."""
    return tuned(model, lora, ())


def _made(
    row: TableRow,
    table_name: str,
    context: Any,
    strategy: Any,
    filled: Filled,
    memory_kind: str | None,
    of_first: bool = False,
) -> MeasuredRun:
    """Return a row with the context and the strategy that it maps to."""
    peak_gib = measured(row, "peak_mem_gib")
    return MeasuredRun(
        run_id=row["run_id"],
        file=table_name,
        source=row["source"],
        group=row["group"],
        context=context,
        strategy=strategy,
        step_time_s=measured(row, "step_time_s"),
        peak_memory_bytes=None if peak_gib is None else peak_gib * GIB,
        memory_kind=memory_kind or MEMORY_KINDS[0],
        outcome=row["outcome"],
        filled=tuple(filled.codes),
        cells=row.cells,
        memory_of_first=of_first,
    )


def _fewest_recomputed(context: Context, strategy: Strategy) -> Strategy:
    """Return a strategy of full recompute with the fewest recomputed layers that fit, or all layers if none fits."""
    layers = range(1, -(-context.model.layer_count // (strategy.pp * strategy.vpp)))
    candidates = [replace(strategy, recompute_layers=some) for some in layers]
    if not candidates:
        return strategy
    fits = score(context, table_of(candidates)).fits
    return next((one for one, fit in zip(candidates, fits, strict=True) if fit), strategy)


def _least_recompute(context: Context, strategy: Strategy) -> Strategy:
    """Return a strategy with the least recompute that fits, with full recompute of the fewest layers.

    A run that ran did fit, and vendors recompute no more than needed. The strategy is unchanged if nothing fits, if the
    host's memory may have the rest, and with experts, whose peaks depend on an unknown balance.
    """
    if context.moe or context.cluster.device.host_bytes_per_s > SLOW_HOST_LINK:
        return strategy
    legality = context.framework.legality
    names = [name for name in LEAST_FIRST if name in legality.recompute]
    candidates = [replace(strategy, recompute=Recompute(parse_named("recompute", name))) for name in names]
    fits = score(context, table_of(candidates)).fits
    least = next((one for one, fit in zip(candidates, fits, strict=True) if fit), strategy)
    if legality.recompute_layers and least.recompute == Recompute.FULL:
        return _fewest_recomputed(context, least)
    return least


def _memory_kind(row: TableRow) -> str | None:
    """Return the stated kind of a row's peak; None if unstated.

    Raises:
        Skip: the kind is unknown.
    """
    kind = row["memory_kind"].strip().lower()
    if kind and kind not in MEMORY_KINDS:
        raise Skip(f"memory_kind is not one of {', '.join(MEMORY_KINDS)}")
    return kind or None


def _expressible(row: TableRow, step_time_s: float | None, peak_gib: float | None) -> None:
    """Raise Skip for rows without information on a strategy, of any shape."""
    if skipped := first(table("sources", "skip"), f"{row['source']}; {row['notes']}"):
        raise Skip(skipped[0]["reason"])
    if row["outcome"] == "failed" and peak_gib is None:
        raise Skip("run failed for another reason than memory")
    if row["outcome"] == "ok" and not step_time_s and peak_gib is None:
        raise Skip("no step time")
    if step_time_s == 0:
        raise Skip("step time of zero")


def _assumptions(row: TableRow, *, allowed: bool) -> list[str]:
    """Return the rules of what a row's notes call assumed.

    Raises:
        Skip: there are some, and they are not allowed.
    """
    notes = f"{row['source']}; {row['notes']}"
    rules = [entry.data["rule"] for entry in table("sources", "assumed") if entry.pattern.search(notes)]
    if rules and not allowed:
        raise Skip(RULES[rules[0]])
    return rules


def _possible(context: Context, strategy: Strategy, step_time_s: float | None, pool: _Pool) -> None:
    """Raise Skip for a step that would need more than the devices' peak: shape, batch or time must be wrong."""
    if not step_time_s:
        return
    try:
        peak = context.cluster.device.peak(context.workload.precision)
    except RequestError:
        raise Skip(f"{context.cluster.device.name} has no {context.workload.precision}") from None
    model, seq_len = context.model, context.workload.seq_len
    sequence = pool.one(
        ("flops", id(model), seq_len), lambda: train_flops_per_sequence(model, seq_len, causal_half=True)
    )
    if sequence * context.workload.global_batch > peak * step_time_s * strategy.devices:
        raise Skip("faster than the devices' peak")


def _context(row: TableRow, facts: Facts, model: Model, cluster: Cluster, pool: _Pool, filled: Filled) -> Context:
    """Return model, cluster, workload and framework of a row; equal contexts are one object."""
    profile = _profile(row, facts, pool, filled)
    precision = "tf32" if facts.tf32 and row["precision"].lower() == "fp32" else row["precision"].lower()
    precision = precision or filled.of("precision", _usual_precision(row, model, cluster))
    if precision in FOUR_BIT:  # rows mean the device's 4-bit format
        precision = next((one for one in FOUR_BIT if one in cluster.device.peak_flops_per_s), precision)
    if precision not in PRECISIONS:
        raise Skip(f"unknown precision {precision}")
    batch = required(row, "global_batch", "strategy")
    seq_len = required(row, "seq_len", "shape")
    key = ("context", id(model), id(cluster), id(profile), precision, batch, seq_len)
    workload = Workload(global_batch=batch, seq_len=seq_len, precision=precision)
    return pool.one(key, lambda: Context(model=model, cluster=cluster, workload=workload, framework=profile))


def _profile(row: TableRow, facts: Facts, pool: _Pool, filled: Filled) -> FrameworkProfile:
    """Return the framework of a row, created once for rows with equal facts."""

    def make() -> tuple[FrameworkProfile, Filled]:
        needed = Filled()
        made = profile_of(row, facts, needed)
        return pool.one(("profile", made), lambda: made), needed

    profile, needed = pool.one(("software", *(row[column] for column in SOFTWARE_COLUMNS)), make)
    for code in needed.codes:
        filled.of(code, None)
    return profile


def _usual_precision(row: TableRow, model: Model, cluster: Cluster) -> str:
    """Return the default precision of published runs of a framework."""
    named = first(table("models", "catalogue"), bare(row["model"]))
    experts = any(isinstance(layer.mlp, MixtureOfExperts) for layer in model.layers)
    recipe = (named[0] if named else {}).get("trained", "") if experts else defaults_of(row).get("precision", "")
    return str(recipe) if recipe in cluster.device.peak_flops_per_s else cluster.device.half_precision
