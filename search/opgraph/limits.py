"""Limits of families of splits: throughput and memory against GPUs, the largest useful number, changes that help."""

from dataclasses import dataclass
from typing import Any

from forerun.search.board.rows import Row, rows_of
from forerun.search.files.documents import SCHEMA, versions
from forerun.search.opgraph.what_if import Doubling, doublings
from forerun.search.request.operator_graphs import modes_of
from forerun.search.request.setting import Setting
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.space import split_space
from forerun.spaces.errors import InfeasibleError
from forerun.spaces.opgraph import Kind
from forerun.spaces.opgraph.limits import split_limits
from forerun.spaces.opgraph.split import Split

PAYS = 0.5
"""Smallest share of the ideal speed-up for which a doubling of the GPUs pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLimits:
    """One family. ``curve``: its best feasible split at every number of GPUs. ``useful_gpus``: the largest number that
    still pays; ``stops`` is the reason. ``law``: the bound set by the model or the batch."""

    family: str
    curve: tuple[Row[Split], ...]
    useful_gpus: int
    stops: str
    law: str
    changes: tuple[Doubling, ...]

    @property
    def best(self) -> Row[Split]:
        """The row at the largest number that pays."""
        return next(row for row in self.curve if row.gpus == self.useful_gpus)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; a point of the curve has its split and throughput."""
        base = self.curve[0]
        return {
            "family": self.family,
            "law": self.law,
            "largest_useful_gpus": self.useful_gpus,
            "stops": self.stops,
            "curve": [
                {
                    "gpus": row.gpus,
                    "strategy": row.name,
                    "global_batch": row.graph.global_batch,
                    "samples_per_s": row.throughput,
                    "efficiency": efficiency(base, row),
                    "step_time_s": row.step_time_s,
                    "peak_memory_gib": row.peak_memory_gib,
                    "bottleneck": row.graph.bottleneck,
                }
                for row in self.curve
            ],
            "doubling": {change.what: change.gain for change in self.changes},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All families, the one with the highest throughput first."""

    setting: Setting[GraphContext]
    families: tuple[FamilyLimits, ...]
    never: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the document that ``forerun limits --json`` prints."""
        return {
            "schema": SCHEMA,
            "request": self.setting.document(),
            "limits": [family.to_json() for family in self.families],
            "never_feasible": self.never,
            "versions": versions(),
        }


def efficiency(base: Row[Split], row: Row[Split]) -> float:
    """Throughput per GPU over that of the first point."""
    return row.throughput_per_gpu / base.throughput_per_gpu


def doubled(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the smallest of ``counts``, its doublings in ``counts``, and the largest."""
    powers = {counts[0] << power for power in range(counts[-1].bit_length())}
    return tuple(count for count in counts if count in powers or count == counts[-1])


def limits_of(setting: Setting[GraphContext], counts: tuple[int, ...]) -> Limits:
    """Compute throughput and memory of every family over ``counts`` of GPUs.

    Raises:
        InfeasibleError: nothing fits on any number of GPUs.
    """
    counts, context = doubled(counts), setting.context
    space = split_space(context, counts, modes_of(setting.request.overrides))
    table, _ = space.table(0, space.size)
    rows = rows_of(context, [split for split in table.splits if isinstance(split, Split)])
    curves: dict[str, dict[int, Row[Split]]] = {}
    leanest: dict[str, Row[Split]] = {}
    for row in rows:
        name = row.graph.family
        if name not in leanest or row.peak_memory_gib < leanest[name].peak_memory_gib:
            leanest[name] = row
        best = curves.setdefault(name, {}).get(row.gpus)
        if row.fits and (best is None or row.throughput > best.throughput):
            curves[name][row.gpus] = row
    families = [
        _family(setting, name, tuple(points[gpus] for gpus in sorted(points)), counts)
        for name, points in curves.items()
        if points
    ]
    never = {
        name: f"needs {leanest[name].peak_memory_gib:.1f} of {leanest[name].memory_limit_gib:.1f} GiB at the least"
        for name, points in curves.items()
        if not points
    }
    if not families:
        raise InfeasibleError("nothing fits: " + "; ".join(f"{name} {text}" for name, text in never.items()))
    ordered = sorted(families, key=lambda family: (-family.best.throughput, family.family))
    return Limits(setting=setting, families=tuple(ordered), never=never)


def _family(
    setting: Setting[GraphContext], name: str, curve: tuple[Row[Split], ...], counts: tuple[int, ...]
) -> FamilyLimits:
    last, stops = curve[0], ""
    for row in curve[1:]:
        gained = row.throughput / last.throughput - 1.0
        wanted = PAYS * (row.gpus / last.gpus - 1.0)
        if gained < wanted:
            more = row.gpus / last.gpus - 1.0
            stops = f"{row.gpus} GPUs: {gained:+.0%} throughput for {more:+.0%} GPUs ({row.graph.bottleneck})"
            break
        last = row
    if not stops:
        beyond = [count for count in counts if count > curve[-1].gpus]
        law = _law(setting, name)
        stops = f"not legal or not fitting on {beyond[0]} GPUs: {law}" if beyond else "none in this range of GPUs"
    return FamilyLimits(
        family=name,
        curve=curve,
        useful_gpus=last.gpus,
        stops=stops,
        law=_law(setting, name),
        changes=doublings(setting.context, last),
    )


def _law(setting: Setting[GraphContext], family: str) -> str:
    """Return the bound set by the model or the batch, as text (ParaDL, table 3)."""
    limits = split_limits(setting.context.model)
    asked = setting.request.global_batch
    limit_of = {
        "filter": f"at most {limits.filters} parts ({limits.filters_at})",
        "channel": f"at most {limits.channels} parts ({limits.channels_at})",
        "pipeline": f"at most {limits.weighted} stages",
        "spatial": f"at most {'x'.join(map(str, limits.extents))} parts, and each layer's halo within one neighbour",
    }
    names = family.split("+")
    laws = [limit_of[name] for name in names if name in limit_of]
    if names[0].startswith("data") and isinstance(asked, int):
        laws.append(f"replicas divide the global batch of {asked}")
    if "tables" in family:
        laws.append(f"{sum(o.kind is Kind.EMBEDDING for o in setting.context.model.operators)} tables to distribute")
    return "; ".join(laws) or "none: the batch grows with the GPUs"
