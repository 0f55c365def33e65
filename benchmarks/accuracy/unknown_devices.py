"""How far runs on known devices are off where nobody measured them: what to expect of a device that borrows constants.

    python benchmarks/accuracy/unknown_devices.py DIR

DIR holds CSV files of the schema in docs/measured-runs.md. Runs on a device are predicted with constants of products,
attention and clocks that another architecture lends, scaled to the device's published ceiling as for any device without
a fit. Prints the median of predicted over measured less one, and of its size, with its own constants and with those.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
from targets import no_test
from unknown_frameworks import errors

from forerun.search.measured.validate import MeasuredRun, load_runs
from forerun.simulator.costs import efficiency
from forerun.simulator.layer import known_times

LENDERS = {
    "a100-sxm4-80": ("h100-sxm",),
    "h100-sxm": ("a100-sxm4-80", "b200-sxm"),
    "b200-sxm": ("h100-sxm",),
    "gb200-nvl72": ("h100-sxm",),
    "v100-sxm2-32": ("h100-sxm",),
    "t4": ("h100-sxm",),
}
"""Devices, and those of other architectures that lend to them."""


def main() -> None:
    """Predict and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    runs = [run for run in load_runs(sorted(parser.parse_args().folder.glob("*.csv"))).runs if _judged(run)]
    print("device, lender, precision, runs, own: bias, median, borrowed: bias, median")
    for device, lenders in LENDERS.items():
        chosen = [run for run in runs if run.context.cluster.device.name == device]
        own = errors(chosen)
        for lender in lenders:
            with _borrowing(device, lender):
                borrowed = errors(chosen)
            _print(device, lender, chosen, own, borrowed)


def _print(
    device: str, lender: str, runs: Sequence[MeasuredRun], *found: "np.ndarray[tuple[int], np.dtype[np.float64]]"
) -> None:
    precisions = np.array([run.context.workload.precision for run in runs])
    for precision in np.unique(precisions):
        rows = precisions == precision
        figures = [f"{np.median(error[rows]):+.1f}, {np.median(abs(error[rows])):.1f}" for error in found]
        print(", ".join((device, lender, str(precision), str(rows.sum()), *figures)), flush=True)


def _judged(run: MeasuredRun) -> bool:
    return no_test(run) and run.outcome == "ok" and bool(run.step_time_s)


@contextmanager
def _borrowing(device: str, lender: str) -> Iterator[None]:
    """Leave a device without constants of its own for a while."""
    data = dict(efficiency._data())  # the table as loaded, before anything is looked up in it
    data["devices"] = {name: entry for name, entry in data["devices"].items() if name != device}
    data["architectures"] = dict.fromkeys(data["architectures"], lender)
    data["sustained_clocks"] = {}
    known_times.forget()
    with patch.object(efficiency, "_data", lambda: data):
        yield
    known_times.forget()


if __name__ == "__main__":
    main()
