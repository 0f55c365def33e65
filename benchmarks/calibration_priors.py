"""Which priors a calibration should hold possible: measured groups as they are, and on machines off the catalogue.

    python benchmarks/calibration_priors.py DIR [--out FILE]

DIR holds CSV files of the schema in docs/measured-runs.md. On the linear form of the model ten runs of every group of
20 measured runs or more are fitted under several sets of priors, drawn at random and chosen by the tool out of a random
70 % of the group, and predict the others. The catalogue was fitted on many of these groups, so that its constants are
right there as they will not be on a machine that nobody has seen: everything is repeated with the constants displaced
by half a spread and by a whole one, drawn for each group. Takes about two minutes of one core.
"""

import argparse
import platform
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from itertools import product
from pathlib import Path

import numpy as np
from calibration_groups import RESULTS, groups
from calibration_page import RUNS, SMALLEST
from calibration_settings import Linear, predicted
from numpy.typing import NDArray
from scipy.stats import t as student

from forerun.search.answer.next_runs import propose
from forerun.simulator.calibration import PRIORS, USUAL, Belief, Components, Prior
from forerun.simulator.calibration.evidence import FREEDOM

Floats = NDArray[np.float64]

DRAWS = 8
LEVEL = 0.9
SUBSET = 0.7
"""Share of a group out of which the tool chooses, so that it chooses more than once."""
DISPLACED = (0.0, 0.5, 1.0)
SEED = 77


def _grid(constants: Sequence[float], residual: Sequence[float], noise: Sequence[float]) -> tuple[Prior, ...]:
    return tuple(Prior(constants=c, residual=r, noise=n) for c, r, n in product(constants, residual, noise))


SETS = {
    "one: constants 1": _grid((1.0,), (1.0,), (1.0,)),
    "one: constants 1/4": _grid((0.25,), (1.0,), (1.0,)),
    "constants 1/8, 1/4, 1/2, 1; residual 1/2, 1": _grid((0.125, 0.25, 0.5, 1.0), (0.5, 1.0), (1.0,)),
    "constants 1/8, 1; residual 1/2, 1; noise 1/2, 1, 2": _grid((0.125, 1.0), (0.5, 1.0), (0.5, 1.0, 2.0)),
    "constants 1/4, 1; residual 1/2, 1; noise 1/2, 1, 2 (taken)": PRIORS,
    "the same with residual 1/4, 1/2, 1": _grid((0.25, 1.0), (0.25, 0.5, 1.0), (0.5, 1.0, 2.0)),
}


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / f"{date.today()}-calibration-priors.md")
    args = parser.parse_args()
    found = [group.linear for group in groups(sorted(args.folder.glob("*.csv")))]
    if not found:
        sys.exit(f"no group of {SMALLEST} measured runs or more in {args.folder}")
    lines = [
        f"# Priors of a calibration, {date.today()}",
        "",
        "    python benchmarks/calibration_priors.py DIR",
        "",
        f"{platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}. {len(found)} groups, "
        f"{DRAWS} choices of ten runs in each; linear form. Error: mean over groups of the median error of the others, "
        "in per cent. Density: mean logarithm of the density of the others. Held: share of choices after which the "
        "error has halved or is under 4 %. Worse: by how much the error grows where it does, mean over all.",
    ]
    for distance in DISPLACED:
        lines += ["", f"## Constants {distance:g} spreads off the catalogue's", "", *_table(found, distance)]
    args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"wrote {args.out}")
    return 0


def _table(found: Sequence[Linear], distance: float) -> list[str]:
    lines = [
        "| priors | runs | before | after | density | within interval | held | worse |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, priors in SETS.items():
        for how, choose in (("random", _random), ("chosen", _chosen)):
            figures = []
            for place, group in enumerate(found):
                off = np.random.default_rng(SEED + place).normal(size=group.slopes.shape[1])
                moved = replace(group, error=group.error + distance * group.slopes @ off)
                figures += [_judged(*choose(moved, seed), priors) for seed in range(DRAWS)]
            before, after, density, inside, held, worse, count = np.array(figures).T
            cells = [
                f"{100 * before.mean():.1f}",
                f"{100 * after.mean():.2f}",
                f"{density.mean():.2f}",
                f"{100 * np.average(inside, weights=count):.1f}",
                f"{100 * held.mean():.0f}",
                f"{100 * worse.mean():.2f}",
            ]
            lines.append(f"| {name} | {how} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return lines


def _random(group: Linear, seed: int) -> tuple[Linear, NDArray[np.intp]]:
    return group, np.random.default_rng(seed).permutation(len(group.error))[:RUNS]


def _chosen(group: Linear, seed: int) -> tuple[Linear, NDArray[np.intp]]:
    """Return a part of a group, and the ten runs of it that the tool chooses."""
    size = max(RUNS + RUNS // 2, int(SUBSET * len(group.error)))
    own = group.only(np.sort(np.random.default_rng(seed).permutation(len(group.error))[:size]))
    covariances, share = own.covariances(USUAL), 1 / len(PRIORS)
    covariance = np.asarray(sum(share * covariances.under(prior) for prior in PRIORS))
    noise = sum(share * (prior.noise * USUAL.noise) ** 2 for prior in PRIORS)
    belief = Belief(log_time=np.zeros(size), covariance=covariance, noise=noise)
    return own, np.array([one.row for one in propose(belief, RUNS, rule="accuracy")])


def _judged(group: Linear, chosen: NDArray[np.intp], priors: Sequence[Prior]) -> tuple[float, ...]:
    shares, means, variances = predicted(group, group.covariances(USUAL), USUAL, chosen, priors)
    rest = np.setdiff1d(np.arange(len(group.error)), chosen)
    error, means, spreads = group.error[rest], means[:, rest], np.sqrt(variances[:, rest])
    middle = shares @ means
    parts = Components(shares=shares, offset=means - middle, spread=spreads)
    low, high = (parts.quantile(0.5 + side * LEVEL / 2) for side in (-1, 1))
    density = np.log(shares @ (student.pdf((error - means) / spreads, FREEDOM) / spreads))
    before, after = (float(np.median(np.abs(np.expm1(one - error)))) for one in (np.zeros(len(rest)), middle))
    inside = (low <= error - middle) & (error - middle <= high)
    held = after <= max(0.04, before / 2)
    return before, after, float(density.mean()), float(inside.mean()), float(held), max(after - before, 0.0), len(rest)


if __name__ == "__main__":
    sys.exit(main())
