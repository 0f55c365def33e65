"""How far runs of known trainers are off where nobody knows their trainer: what to expect of one that is unknown.

    python benchmarks/accuracy/unknown_frameworks.py DIR

DIR holds CSV files of the schema in docs/measured-runs.md. Every run whose trainer is not Megatron-LM or made of it is
predicted four times: by its own profile, by Megatron-LM's, by the one that a trainer without a description gets, and by
that with the settings of the run's switches, as a user states them. The kernel of attention stays, as rows state it.
Prints the median of predicted over measured less one, and of its size.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from forerun.search.measured.validate import MeasuredRun, load_runs, predict
from forerun.search.measured.validate.software import unknown_profile
from forerun.spaces.frameworks import FrameworkProfile, load_framework
from forerun.spaces.frameworks.switches import with_settings

OWN = ("deepspeed", "fsdp", "internevo", "nanotron", "scaling", "torchtitan")
"""Profiles of trainers that share no kernels with Megatron-LM's."""


def main() -> None:
    """Predict and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    runs = [run for run in load_runs(sorted(parser.parse_args().folder.glob("*.csv"))).runs if _judged(run)]
    ways: dict[str, Callable[[FrameworkProfile], FrameworkProfile]] = {
        "own": lambda own: own,
        "Megatron-LM": lambda own: _kernel_of(load_framework("megatron-lm"), own),
        "unknown": lambda own: _kernel_of(unknown_profile(), own),
        "unknown, with its switches": lambda own: _kernel_of(with_settings(unknown_profile(), dict(own.switches)), own),
    }
    error = {name: errors([_read_as(run, way) for run in runs]) for name, way in ways.items()}
    parts = sorted({(run.file, run.context.framework.name) for run in runs})
    print("table, trainer, runs" + "".join(f", {name}: bias, median" for name in ways))
    for part in parts:
        rows = [row for row, run in enumerate(runs) if (run.file, run.context.framework.name) == part]
        figures = [f"{np.median(error[name][rows]):.1f}, {np.median(abs(error[name][rows])):.1f}" for name in ways]
        print(", ".join((*part, str(len(rows)), *figures)))


def _judged(run: MeasuredRun) -> bool:
    return run.context.framework.name in OWN and run.outcome == "ok" and bool(run.step_time_s)


def _kernel_of(profile: FrameworkProfile, own: FrameworkProfile) -> FrameworkProfile:
    return replace(profile, attention=own.attention, dropout=own.dropout)


def _read_as(run: MeasuredRun, way: Callable[[FrameworkProfile], FrameworkProfile]) -> MeasuredRun:
    return replace(run, context=replace(run.context, framework=way(run.context.framework)))


def errors(runs: Sequence[MeasuredRun]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return predicted over measured less one, in per cent."""
    measured = np.array([run.step_time_s for run in runs], dtype=np.float64)
    return 100 * (predict(runs).step_time_s / measured - 1)


if __name__ == "__main__":
    main()
