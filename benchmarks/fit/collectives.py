"""Fit the constants of collectives to published measurements and write ``simulator/costs/data/collectives.yaml``.

    python -m benchmarks.fit.collectives DIR [--out FILE] [--held-out]

DIR holds ``collective_aiconfigurator.csv``, ``collective_ett.csv``, ``collective_lumi.csv``, ``collective_nccl.csv``
and ``collective_hf_ultrascale.csv``. Prints the median error per source, collective, ranks and size band;
``--held-out`` refits without every other size and without one device at a time.
"""

import argparse
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.fit.collectives_output import document, error_table, write
from benchmarks.fit.collectives_rows import LEVELS, read_rows
from benchmarks.fit.collectives_start import JOBS, START, Job
from forerun.simulator.costs.collectives.constants import LinkConstants, Table
from forerun.simulator.costs.collectives.rule import time_on_levels_s


def predict_s(rows: pd.DataFrame, known: Table) -> NDArray[np.float64]:
    """Predicted seconds of every row, one vectorised call per setting and collective."""
    out = np.zeros(len(rows))
    full_bytes, ranks, stride = (rows[name].to_numpy(float) for name in ("full_bytes", "ranks", "stride"))
    for (setting, collective), index in rows.groupby(["setting", "collective"]).indices.items():
        where = LEVELS[setting]
        out[index] = time_on_levels_s(
            where.levels,
            where.architecture,
            collective,
            full_bytes[index],
            ranks[index],
            stride[index],
            lone=where.lone,
            known=known,
        )
    return out


def unpack(row: LinkConstants, free: Iterable[str], logs: NDArray[np.float64]) -> LinkConstants:
    """``row`` with the free fields (``field`` or ``field:part``) replaced by the exponentials of ``logs``."""
    changes: dict[str, object] = {}
    for name, log in zip(free, logs, strict=True):
        field, _, part = name.partition(":")
        value = changes.get(field, getattr(row, field))
        number = float(np.exp(log))
        if isinstance(value, Mapping):
            changes[field] = {**value, part: min(number, 1.0)}  # no link carries more than its line rate
        elif isinstance(value, tuple):
            changes[field] = (*value[: int(part)], number, *value[int(part) + 1 :])
        else:
            changes[field] = number
    return dataclasses.replace(row, **changes)


def pack(row: LinkConstants, free: Iterable[str]) -> NDArray[np.float64]:
    """Logarithms of the free fields."""
    values = []
    for name in free:
        field, _, part = name.partition(":")
        value = getattr(row, field)
        values.append(value[part] if isinstance(value, Mapping) else value[int(part)] if part else value)
    return np.log(values)


def fit(job: Job, rows: pd.DataFrame, known: Table) -> LinkConstants:
    """Least softened logarithmic error; every sweep (setting, collective, ranks) weighs the same.

    A weak prior (2 % of error per e-fold away from the start) settles fields that the rows hardly see.
    """
    own = rows[rows.setting.isin(job.settings)].reset_index(drop=True)
    measured = own.seconds.to_numpy(float)
    sweeps = own.groupby(["setting", "collective", "ranks"]).seconds.transform("size").to_numpy(float)
    weight = np.sqrt(sweeps.mean() / sweeps)
    start = known.links[job.key]

    origin = pack(start, job.free)

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        links = {**known.links, job.key: unpack(start, job.free, logs)}
        guess_s = predict_s(own, dataclasses.replace(known, links=links))
        prior = np.sqrt(len(own)) * 0.02 * (logs - origin)
        return np.concatenate([weight * np.log(guess_s / measured), prior])

    found = least_squares(residuals, origin, loss="soft_l1", f_scale=0.08, max_nfev=80, diff_step=1e-4)
    return unpack(start, job.free, found.x)


def probe_sizes(rows: pd.DataFrame, known: Table) -> pd.DataFrame:
    """Fill blank sizes: per source and device the one that explains the bus bandwidths best (a power of 2 ** 0.25)."""
    filled = rows.copy()
    for _, index in rows[rows.bus.notna()].groupby(["source", "device"]).groups.items():
        best = np.inf
        for size in 2.0 ** np.arange(20.0, 33.0, 0.25):
            trial = with_size(rows.loc[index], size)
            error = float(np.mean(np.abs(np.log(predict_s(trial, known) / trial.seconds.to_numpy(float)))))
            if error < best:
                best = error
                filled.loc[index] = trial
    return filled


def with_size(rows: pd.DataFrame, full_bytes: float) -> pd.DataFrame:
    """Rows given as bus bandwidth, as seconds at ``full_bytes`` (nccl-tests convention)."""
    passes = rows.collective.eq("all_reduce").to_numpy(float) + 1.0
    share = ((rows.ranks - 1) / rows.ranks).to_numpy(float)
    return rows.assign(full_bytes=full_bytes, seconds=passes * share * full_bytes / (rows.bus.to_numpy(float) * 1e9))


def fit_all(rows: pd.DataFrame, known: Table = START) -> Table:
    """Fit every job in turn; later jobs (networks) see the constants of earlier ones (the links inside a node)."""
    for job in JOBS:
        own = rows[rows.setting.isin(job.settings)]
        for _ in range(4 if own.bus.notna().any() else 1):
            own = probe_sizes(own, known)
            if len(own):
                known = dataclasses.replace(known, links={**known.links, job.key: fit(job, own, known)})
    return known


def held_out(rows: pd.DataFrame) -> None:
    """Print the errors on every other size, and on each device of a kind that has several, when fitted on the rest."""
    rows = rows.assign(bus=float("nan"))
    order = rows.groupby(["setting", "collective", "ranks"]).full_bytes.rank(method="dense")
    odd = (order % 2 == 1).to_numpy()
    tested = rows[~odd]
    print("\n== held out: every other size")
    print(
        error_table(tested, predict_s(tested, fit_all(rows[odd])), ["source", "setting", "band"]).round(3).to_string()
    )
    print("\n== held out: one device at a time")
    name = rows.device.str.split().str[0].where(rows.source == "aiconfigurator", rows.source)
    for job in JOBS:
        devices = name[rows.setting.isin(job.settings)].unique()
        for device in devices if len(devices) > 1 else ():
            out = rows.setting.isin(job.settings) & (name == device)
            known = fit_all(rows[rows.setting.isin(job.settings) & ~out])
            table = error_table(rows[out], predict_s(rows[out], known), ["setting", "band"])
            print(f"{job.key} without {device}\n{table.round(3).to_string()}")


def report(rows: pd.DataFrame, known: Table, title: str) -> None:
    """Print the error tables."""
    predicted_s = predict_s(rows, known)
    print(f"\n== {title}")
    for by in (["source", "setting", "band"], ["setting", "collective", "band"], ["setting", "ranks", "band"]):
        print(error_table(rows, predicted_s, by).round(3).to_string(), "\n")


def main() -> None:
    """Fit, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("simulator/costs/data/collectives.yaml"))
    parser.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    rows = read_rows(options.folder)
    known = fit_all(rows)
    rows = probe_sizes(rows, known)
    print("sizes of the probes:", rows[rows.bus.notna()].groupby(["source", "device"]).full_bytes.first().to_dict())
    report(rows, known, "fitted")
    if options.held_out:
        held_out(rows)
    settings = {setting: job.key for job in JOBS for setting in job.settings}
    write(options.out, document(known, rows, predict_s(rows, known), settings))


if __name__ == "__main__":
    main()
