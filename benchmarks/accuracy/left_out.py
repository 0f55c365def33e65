"""Errors of predictions of published runs with groups, tables, devices, frameworks or mechanisms left out.

A sample is the measured and predicted runs of a folder, in cells that a group, a kind and a scale share. What the
others say of cells that are left out follows from one inverse of their covariance (Rasmussen and Williams, Gaussian
Processes for Machine Learning, 2006, equation 5.12, for blocks).
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import targets
from numpy.typing import NDArray

from forerun.search.measured.intervals import busy_share
from forerun.search.measured.intervals.cells import Floats, Points, Residuals, kind_of, peak_ratio
from forerun.search.measured.intervals.kriging import DEVIATIONS, rescaling, shifted
from forerun.search.measured.intervals.variance import (
    Relations,
    Variances,
    cell_covariance,
    covariance,
    likeness,
    relations,
    scatter,
    variance,
)
from forerun.search.measured.validate import MeasuredRun, Predictions
from forerun.search.measured.validate.intervals import GUESSED

FIRST = Path(__file__).parent / "first_predictions.csv"
"""What was predicted of runs of kinds without any measured run, at commit 09fbb12f, before any of them was used."""
GPU_BINS, BUSY_BINS, PEAK_BINS = 2.0, 5.0, 1.0
"""Doublings of devices that share a cell; cells of the computing share; doublings of predicted peaks."""
FURTHEST = 1.0
"""Errors count as no larger than this logarithm: beyond, another job was measured."""
NORMAL_ROOT = 0.8222
"""Mean root of the absolute value of a standard normal variable: 2 ** 0.25 gamma(0.75) / sqrt(pi)."""
Groups = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """N runs in C cells: ``error`` (N) is the logarithm of measured over predicted, ``cell`` (N) the place of each run,
    ``runs`` (N) the runs themselves, ``groups`` (C) the comparison group of every cell, ``models`` (C) its model and
    table."""

    runs: tuple[MeasuredRun, ...]
    error: Floats
    cell: Groups
    points: Points
    shared: Relations
    groups: Groups
    models: Groups

    @property
    def shared_by_new(self) -> Relations:
        """What runs of no table at the same places share with the cells."""
        return replace(self.shared, table=np.zeros_like(self.shared.table))

    @property
    def rows(self) -> Floats:
        """Runs of every cell."""
        return np.bincount(self.cell).astype(float)

    @property
    def median(self) -> Floats:
        """Median error of every cell."""
        order = np.lexsort((self.error, self.cell))
        parts = np.split(self.error[order], np.cumsum(np.bincount(self.cell))[:-1])
        return np.array([np.median(part) for part in parts])


def sample_of(predictions: Predictions, quantity: str, *, first: bool = False) -> Sample:
    """Return the runs that have a measured "step" or "memory"; ``first``: runs of kinds that had none are as they were
    predicted then, by software that counts as their own."""
    asked = first_predictions() if first else {}
    tables = {name: place for place, name in enumerate(sorted({run.file for run in predictions.runs}))}
    busy, rows, errors, runs = busy_share(predictions.time_s), [], [], []
    for place, run in enumerate(predictions.runs):
        if run.outcome != "ok" or not predictions.predicted[place]:
            continue
        before = asked.get(run.run_id)
        if first and before is None and run.file in {name.rpartition("-")[0] for name in asked}:
            continue  # it could not be predicted then
        step_s, peak = predictions.step_time_s[place], float(predictions.comparable_memory_bytes[place])
        kind = kind_of(run.context, run.strategy.zero, guessed=recompute_guessed(run))
        if before is not None:
            step_s, peak = float(before["predicted_step_time_s"]), float(before["predicted_peak_mem_gib"]) * 2**30
            kind = replace(kind, constants=before["constants"], framework=before["framework"])
        if quantity == "step":
            error = np.log((run.step_time_s or np.nan) / step_s)
        else:
            error = np.log(peak_ratio(run.peak_memory_bytes or np.nan, peak))
        if not np.isfinite(error):
            continue
        rows.append((tables[run.file], kind, run.strategy.devices, float(busy[place]), run.memory_kind, peak))
        errors.append(float(np.clip(error, -FURTHEST, FURTHEST)))
        runs.append(run)
    return _sample(runs, np.array(errors), rows, quantity)


def recompute_guessed(run: MeasuredRun) -> bool:
    """Return whether how much a run recomputes was filled in."""
    return bool(GUESSED & set(run.filled))


def first_predictions() -> Mapping[str, Mapping[str, str]]:
    """Return the first predictions by run."""
    with FIRST.open(newline="", encoding="utf-8") as file:
        return {line["run_id"]: line for line in csv.DictReader(file)}


def _sample(runs: Sequence[MeasuredRun], errors: Floats, rows: Sequence[Any], quantity: str) -> Sample:
    """Return rows in cells of a table, a group, a kind and a scale."""
    keys = [
        (table, run.group, kind, *_scale(gpus, busy, reading, peak, quantity))
        for run, (table, kind, gpus, busy, reading, peak) in zip(runs, rows, strict=True)
    ]
    place = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    cell = np.array([place[key] for key in keys])
    points = points_of(rows, cell, quantity)
    first = np.unique(cell, return_index=True)[1]
    return Sample(
        runs=tuple(runs),
        error=errors,
        cell=cell,
        points=points,
        shared=relations(points, points),
        groups=coded([(key[0], key[1]) for key in place]),
        models=coded([(runs[row].file, runs[row].context.model.name) for row in first]),
    )


def _scale(gpus: int, busy: float, reading: str, peak: float, quantity: str) -> tuple[Any, ...]:
    scale = (round(np.log2(gpus) / GPU_BINS), round(busy * BUSY_BINS))
    return scale if quantity == "step" else (*scale, reading, round(np.log2(peak) / PEAK_BINS))


def points_of(rows: Sequence[Any], cell: Groups, quantity: str) -> Points:
    """Return the middle of every cell of (table, kind, GPUs, computing share, reading, peak) rows."""
    tables, kinds, gpus, busy, reading, peak = zip(*rows, strict=True)
    first = np.unique(cell, return_index=True)[1]
    step = quantity == "step"
    return Points(
        kinds=tuple(kinds[row] for row in first),
        gpus=_means(np.log2(np.array(gpus, dtype=float)), cell),
        busy=_means(np.array(busy), cell),
        tables=np.array(tables)[first],
        reading=np.array(["" if step else reading[row] for row in first]),
        size=np.zeros(len(first)) if step else _means(np.log2(np.array(peak)), cell),
    )


def _means(values: Floats, cell: Groups) -> Floats:
    means: Floats = np.bincount(cell, values) / np.bincount(cell)
    return means


def coded(keys: Sequence[Any]) -> Groups:
    """Return equal keys as equal numbers."""
    place = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([place[key] for key in keys])


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is left out in turn: ``judged`` (C) numbers the blocks that are judged, ``absent`` returns the cells (mask)
    that are left out with a block."""

    name: str
    judged: Groups
    absent: Callable[[Groups], NDArray[np.bool_]]


def situations(sample: Sample) -> tuple[Situation, ...]:
    """Return the situations that a prediction can be in."""
    kinds, points = sample.points.kinds, sample.points
    codes = {
        "group": sample.groups,
        "model of a source": sample.models,
        "source": points.tables,
        "framework on device": coded([(kind.device, kind.framework) for kind in kinds]),
        "device": coded([kind.device for kind in kinds]),
        "framework": coded([kind.framework for kind in kinds]),
        "kind of run": coded([(kind.generation, kind.mechanism) for kind in kinds]),
    }
    plain = [
        Situation(name=name, judged=code, absent=lambda cells, code=code: code == code[cells[0]])
        for name, code in codes.items()
    ]
    device, framework = codes["device"], codes["framework"]
    both = Situation(
        name="device and framework",
        judged=codes["framework on device"],
        absent=lambda cells: (device == device[cells[0]]) | (framework == framework[cells[0]]),
    )
    return (*plain, both)


@dataclass(frozen=True, slots=True, kw_only=True)
class Believed:
    """What the C cells of a sample say of runs of no table at the same places, under some variances.

    ``inverse``: of the covariance of the cells; ``weights``: its product with their errors; ``passed`` (C x C): product
    of the covariance of new runs with the cells and the inverse; ``mean``, ``known``: expected error of a new run and
    variance that all cells take from it; ``alone``: its variance without them; ``alike``, ``missed``: what rescales it.
    """

    sample: Sample
    sizes: Variances
    inverse: Floats
    weights: Floats
    passed: Floats
    mean: Floats
    known: Floats
    alone: Floats
    alike: Floats
    missed: Floats


def believed(sample: Sample, sizes: Variances) -> Believed:
    """Return what all cells say together, and the errors of each over those expected with its group left out."""
    points = sample.points
    new = covariance(points, points, sample.shared_by_new, sizes)
    inverse = np.linalg.inv(cell_covariance(points, sample.rows, sample.shared, sizes))
    weights, passed, alone = inverse @ sample.median, new @ inverse, variance(points, sizes)
    known = Believed(
        sample=sample, sizes=sizes, inverse=inverse, weights=weights, passed=passed, mean=passed @ sample.median,
        known=(passed * new).sum(axis=1), alone=alone,
        alike=likeness(sample.shared) * np.sqrt(sample.rows), missed=np.ones(len(alone)),
    )  # fmt: skip
    middle, deviation = shifted(*_others_say(known, situations(sample)[0]))
    missed = np.sqrt(np.abs(sample.error - middle[sample.cell]) / deviation[sample.cell]) / NORMAL_ROOT
    return replace(known, missed=_means(missed, sample.cell))


def left_out(known: Believed, situation: Situation) -> tuple[Floats, Floats]:
    """Return the middle of every run's interval and half its width, with its block left out."""
    mean, spread = _others_say(known, situation)
    factor = np.empty(len(mean))
    for cells in _blocks(situation.judged):
        weight = known.alike[cells] * ~situation.absent(cells)
        factor[cells] = rescaling(weight, known.missed, known.sizes)
    middle, deviation = shifted(mean, spread * factor**2)
    return middle[known.sample.cell], (DEVIATIONS * deviation)[known.sample.cell]


def _others_say(known: Believed, situation: Situation) -> tuple[Floats, Floats]:
    """Return mean and variance of a new run at every cell, as the cells that stay expect it: the inverse
    without some cells is the whole one less its columns of those, through the inverse of their block."""
    mean, spread = known.mean.copy(), known.alone - known.known
    for cells in _blocks(situation.judged):
        absent = np.flatnonzero(situation.absent(cells))
        through = known.passed[np.ix_(cells, absent)] @ np.linalg.inv(known.inverse[np.ix_(absent, absent)])
        mean[cells] -= through @ known.weights[absent]
        spread[cells] += (through * known.passed[np.ix_(cells, absent)]).sum(axis=1)
    return mean, np.maximum(spread, scatter(known.sample.points, known.sizes))


def _blocks(judged: Groups) -> list[Groups]:
    order = np.argsort(judged, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(judged[order])) + 1)


def merged(known: Believed, quantity: str) -> Residuals:
    """Return the cells without their groups, as a search uses them."""
    sample, points = known.sample, known.sample.points
    size = points.size if quantity == "memory" else np.zeros(len(points.size))
    bins = zip(
        points.tables, points.kinds, np.round(points.gpus / GPU_BINS), np.round(points.busy * BUSY_BINS),
        points.reading, np.round(size / PEAK_BINS), strict=True,
    )  # fmt: skip
    cell = coded([(table, kind, *numbers) for table, kind, *numbers in bins])[sample.cell]
    rows = [
        (points.tables[at], points.kinds[at], 2 ** points.gpus[at], points.busy[at], points.reading[at],
         2 ** points.size[at])
        for at in sample.cell
    ]  # fmt: skip
    one = replace(sample, cell=cell, points=points_of(rows, cell, quantity))
    missed = _means(known.missed[sample.cell], cell)
    return Residuals(points=one.points, log_ratio=one.median, rows=one.rows, missed=missed)


def tests_only(run: MeasuredRun) -> bool:
    """Return whether a run is a test of a tiny model, or its device is not stated."""
    return not targets.no_test(run)
