"""How soon `forerun tune` finds the best strategy of measured groups, against other ways to choose runs.

    python benchmarks/tune.py DIR [--out FILE.md]

DIR holds CSV files of the schema in docs/measured-runs.md. Every group of twelve measured strategies or more is a
cluster that is asked for runs one after the other. A run that ran out of memory in the table does so here, and counts
as one. Regret: how much slower than the fastest strategy of the group the fastest measured one is after so many runs;
before any ran, that of a strategy drawn at random.

Predictions are those of the catalogue as it is; with the framework unknown (the profile of a trainer without a
description, as for a framework without a measured run); and with the device unknown (constants of another
architecture). The spreads of the chooser are also chosen on all other sources, and judged on the one that was left out.
"""

import argparse
import platform
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import optuna
from numpy.typing import NDArray

from forerun.search.measured.validate import MeasuredRun, load_runs
from forerun.search.measured.validate.software import unknown_profile
from forerun.search.order.worth import failed_start, launch_factor, odds_of_failure
from forerun.search.tune import Candidate, Chooser, RunCost, RunOutcome
from forerun.search.tune.axes import axes_of
from forerun.search.tune.posterior import USUAL, Spreads
from forerun.simulator import score
from forerun.simulator.costs import efficiency
from forerun.simulator.layer import known_times
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.strategies import table_of

Floats = NDArray[np.float64]

SMALLEST = 12
RUNS = (1, 2, 3, 5)
LONGEST = max(RUNS)
DRAWS, STUDIES = 200, 20
SETTINGS = {
    "catalogue": "catalogue as it is",
    "framework": "framework without a measured run",
    "device": "device without a measured run",
}
LENDERS = {
    "a100-sxm4-80": "h100-sxm",
    "h100-sxm": "a100-sxm4-80",
    "v100-sxm2-32": "h100-sxm",
    "t4": "h100-sxm",
}
"""Devices of the groups, and those of other architectures that lend them constants."""
SPREADS = tuple(
    Spreads(common=common, axes=axes, alone=alone, noise=noise)
    for common, axes, alone, noise in product((0.04, 0.08, 0.16), (0.06, 0.12, 0.24), (0.015, 0.03, 0.06), (0.02,))
)
"""Among which those of other sources are chosen: the usual ones, halves and doubles."""
DAY_S = 86400.0
RUN = RunCost()
TRAINING_DAYS = (1, 7, 30)
STOPPED = (
    "Means over groups: runs; regret of the measured best when `tune` stops + the time of the runs (120 s and 20 steps "
    "each), and the regret of the first row without tuning, in per cent of the training. The length of the training is "
    "that with the predicted best strategy."
)
FITTED = (
    "The spreads of the chooser and the price of a failed first run were chosen on these groups; in the second row of "
    "each table the spreads, not the price (used without a measured run of the framework), are chosen on all other "
    "sources. The cost model was developed, and its OOM "
    "risks were fitted, with measured runs that include these groups: without a measured run of the framework only its "
    "profile is unknown, without one of the device its constants are those of another architecture."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Strategies that were measured for one job: predictions and the measured ``time_s`` (nan: out of memory).

    ``measured``: whether runs of the framework were measured.
    """

    name: str
    source: str
    strategies: tuple[str, ...]
    step_s: tuple[float, ...]
    odds: tuple[float, ...]
    dislike: tuple[float, ...]
    measured: bool
    time_s: tuple[float, ...]

    def regret(self, rows: Sequence[int]) -> Floats:
        """Return the regret after every number of runs up to ``LONGEST``."""
        times = np.array(self.time_s)
        best, result = np.nanmin(times), []
        for count in range(1, LONGEST + 1):
            ran = times[list(rows[:count])]
            ran = ran[np.isfinite(ran)]
            result.append((ran.min() if len(ran) else np.nanmean(times)) / best - 1)
        return np.array(result)

    def candidates(self) -> list[Candidate]:
        """Return the strategies as the chooser takes them."""
        return [
            Candidate(key=name, strategy=name, step_s=step_s, oom_probability=odds / (1 + odds), dislike=dislike)
            for name, step_s, odds, dislike in zip(self.strategies, self.step_s, self.odds, self.dislike, strict=True)
        ]


def main() -> int:
    """Replay all groups and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    results = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path, default=results / f"{date.today()}-tune.md")
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    args.out.write_text("\n".join(page(groups_of(args.folder))) + "\n", encoding="utf-8")
    print(f"wrote {args.out}")
    return 0


def groups_of(folder: Path) -> dict[str, list[Group]]:
    """Return the groups by setting, in the order of their tables."""
    members: dict[str, list[MeasuredRun]] = defaultdict(list)
    for run in load_runs(sorted(folder.glob("*.csv"))).runs:
        if run.group and (run.outcome == "oom" or (run.outcome == "ok" and run.step_time_s)):
            members[run.group].append(run)
    large = {
        name: runs
        for name, runs in members.items()
        if len({_text(run) for run in runs if run.outcome == "ok"}) >= SMALLEST
    }
    if not large:
        sys.exit(f"no group of {SMALLEST} measured strategies or more in {folder}")
    return {setting: [_group(name, runs, setting) for name, runs in large.items()] for setting in SETTINGS}


def _text(run: MeasuredRun) -> str:
    """Return a strategy with the kernels that runs of a group differ in."""
    eager = "-".join(run.context.framework.eager) or "none"
    return f"{run.strategy} attention={run.context.attention} eager={eager}"


def _group(name: str, runs: Sequence[MeasuredRun], setting: str) -> Group:
    """Return a group with its predictions; repeats of a strategy count once, with their median."""
    repeats: dict[str, list[MeasuredRun]] = defaultdict(list)
    for run in runs:
        repeats[_text(run)].append(run)
    device = runs[0].context.cluster.device.name
    step_s, odds, dislike = [], [], []
    with _borrowing(device, device if setting != "device" else LENDERS.get(device, device)):
        for own in repeats.values():
            asked = own[0].context
            if setting == "framework":
                asked = replace(asked, framework=_unknown(asked.framework))
            table = table_of([own[0].strategy])
            scores = score(asked, table)
            step_s.append(float(scores.step_time_s[0]))
            odds.append(float(odds_of_failure(asked, scores)[0]))
            dislike.append(float(launch_factor(asked, table)[0]) - 1)
    times = [[run.step_time_s for run in own if run.outcome == "ok"] for own in repeats.values()]
    return Group(
        name=name,
        source=runs[0].file,
        strategies=tuple(repeats),
        step_s=tuple(step_s),
        odds=tuple(odds),
        dislike=tuple(dislike),
        measured=setting != "framework",
        time_s=tuple(float(np.median(own)) if own else float("nan") for own in times),
    )


@contextmanager
def _borrowing(device: str, lender: str) -> Iterator[None]:
    """Give a device the constants of another one for a while."""
    data = dict(efficiency._data())
    if lender != device:
        data["devices"] = {name: entry for name, entry in data["devices"].items() if name != device}
        data["architectures"] = dict.fromkeys(data["architectures"], lender)
        data["sustained_clocks"] = {}
    known_times.forget()
    with patch.object(efficiency, "_data", lambda: data):
        yield
    known_times.forget()


def _unknown(own: FrameworkProfile) -> FrameworkProfile:
    """Return the profile of a trainer without a description; kernels are those that the run names."""
    return replace(unknown_profile(), attention=own.attention, dropout=own.dropout, eager=own.eager)


def tuned(
    group: Group, spreads: Spreads = USUAL, most: int = LONGEST, training_s: float | None = None, cost: RunCost = RUN
) -> list[int]:
    """Return the runs of `forerun tune`, at most ``most``; ``training_s``: until none is worth its ``cost``."""
    place = {name: row for row, name in enumerate(group.strategies)}
    chooser = Chooser(group.candidates(), spreads=spreads, measured=group.measured, training_s=training_s, cost=cost)
    outcomes, rows = list[RunOutcome](), list[int]()
    while len(rows) < most and (run := chooser.next_run(outcomes)) is not None:
        rows.append(place[run.candidate.key])
        time_s = group.time_s[rows[-1]]
        ran = np.isfinite(time_s)
        outcomes.append(
            RunOutcome(key=run.candidate.key, status="ok" if ran else "oom", step_s=time_s if ran else None)
        )
    return rows


def row_order(group: Group) -> list[int]:
    """Return the runs in the order of the leaderboard."""
    worth = np.array(group.step_s) * (1 + np.array(group.dislike) + failed_start(np.array(group.odds)))
    return np.argsort(worth, kind="stable").tolist()


def grid(group: Group) -> list[int]:
    """Return the runs in the nested loops of a grid: tensor, pipeline, context, expert degree, microbatch."""
    axes = ("tp", "pp", "cp", "ep", "mbs")
    degrees = [tuple(int(axes_of(text).get(name, 1)) for name in axes) for text in group.strategies]
    return sorted(range(len(degrees)), key=lambda row: degrees[row])


def cold_tpe(group: Group, seed: int) -> list[int]:
    """Return the runs of Optuna's TPE without predictions; combinations of choices that were not measured cost
    nothing."""
    words = [{k: v for k, v in axes_of(text).items() if k != "dp"} for text in group.strategies]
    choices = {name: sorted({one.get(name, "") for one in words}) for one in words for name in one}
    row_of = {tuple(one.get(name, "") for name in choices): row for row, one in enumerate(words)}
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    rows: list[int] = []
    for _ in range(2000):
        trial = study.ask()
        row = row_of.get(tuple(trial.suggest_categorical(name, values) for name, values in choices.items()))
        if row is None or row in rows:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        rows.append(row)
        time_s = group.time_s[row]
        failed = optuna.trial.TrialState.FAIL if not np.isfinite(time_s) else None
        study.tell(trial, None if failed else time_s, state=failed)
        if len(rows) == LONGEST:
            break
    return rows


def drawn(group: Group, seed: int) -> list[int]:
    """Return runs drawn at random."""
    return np.random.default_rng(seed).permutation(len(group.strategies))[:LONGEST].tolist()


def without_source(groups: Mapping[str, Sequence[Group]], source: str) -> Spreads:
    """Return the spreads that do best on the groups of all other sources, in all settings."""
    others = [group for own in groups.values() for group in own if group.source != source]
    losses = [np.mean([group.regret(tuned(group, one))[1:].mean() for group in others]) for one in SPREADS]
    return SPREADS[int(np.argmin(losses))]


Way = Callable[[Group, int], Sequence[int]]


def page(groups: Mapping[str, Sequence[Group]]) -> list[str]:
    """Return the page."""
    first = groups["catalogue"]
    chosen = {source: without_source(groups, source) for source in dict.fromkeys(group.source for group in first)}
    ways: dict[str, tuple[Way, int]] = {
        "tune": (lambda group, _: tuned(group), 1),
        "tune, spreads chosen without the source": (lambda group, _: tuned(group, chosen[group.source]), 1),
        "row order": (lambda group, _: row_order(group), 1),
        "grid": (lambda group, _: grid(group), 1),
        "TPE, started cold": (cold_tpe, STUDIES),
        "random": (drawn, DRAWS),
    }
    machine = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    lines = [
        f"# Runs of `forerun tune` on measured groups, {date.today()}",
        "",
        "    python benchmarks/tune.py DIR",
        "",
        f"{machine[1] if machine else platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"Optuna {optuna.__version__}.",
        "",
        f"{len(first)} groups of {SMALLEST} measured strategies or more from {len(chosen)} sources, "
        f"{sum(len(group.strategies) for group in first):,} strategies, of which "
        f"{sum(np.isnan(group.time_s).sum() for group in first):,} ran out of memory. Regret in per cent, mean over "
        f"groups (median; worst), after so many runs; failed starts among the first three. A run out of memory is one. "
        f"TPE: mean of {STUDIES} studies, random: of {DRAWS} draws.",
        "",
        FITTED,
    ]
    for setting, title in SETTINGS.items():
        lines += ["", f"## {title[0].upper()}{title[1:]}", ""]
        lines += ["| runs chosen by | " + " | ".join(f"after {count}" for count in RUNS) + " | failed |"]
        lines += ["|---|" + "---:|" * (len(RUNS) + 1)]
        for name, (way, repeats) in ways.items():
            regrets, failed = _replayed(groups[setting], way, repeats)
            cells = [
                f"{regrets[:, count - 1].mean():.2f} ({np.median(regrets[:, count - 1]):.1f}; "
                f"{regrets[:, count - 1].max():.0f})"
                for count in RUNS
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + f" | {failed:.2f} |")
            print(setting, name, *cells, flush=True)
    lines += ["", "## Every group, catalogue as it is", "", "| group | strategies | out of memory | tune | row order |"]
    lines += ["|---|---:|---:|---|---|"]
    for group in first:
        shown = (
            ", ".join(f"{100 * group.regret(rows)[count - 1]:.1f}" for count in RUNS)
            for rows in (tuned(group), row_order(group))
        )
        out = int(np.isnan(group.time_s).sum())
        lines.append(
            f"| {group.name.replace('|', ' ')} | {len(group.strategies)} | {out} | " + " | ".join(shown) + " |"
        )
    lines += stopped(groups) + sensitivity(groups)
    usual = asdict(USUAL)
    texts = (f"{source}: {', '.join(f'{k} {v:g}' for k, v in asdict(one).items())}" for source, one in chosen.items())
    lines += ["", f"Spreads: {', '.join(f'{name} {value:g}' for name, value in usual.items())}; without a source:"]
    return [*lines, "; ".join(texts) + "."]


def sensitivity(groups: Mapping[str, Sequence[Group]]) -> list[str]:
    """Return the table of mean regrets with other constants of the chooser."""
    lines = ["", "## Other constants of the chooser", "", "Mean regret after 1, 2, 3 and 5 runs.", ""]
    lines += ["| constant | " + " | ".join(SETTINGS.values()) + " |", "|---|" + "---|" * len(SETTINGS)]
    lines.append(_mean_regrets("as chosen", groups, USUAL))
    for name, value in asdict(USUAL).items():
        for factor in (0.5, 2):
            spreads = replace(USUAL, **{name: factor * value})
            lines.append(_mean_regrets(f"{name} {factor * value:g}", groups, spreads))
    return lines


def stopped(groups: Mapping[str, Sequence[Group]]) -> list[str]:
    """Return the table of whole tunings, ended by the price of a run."""
    lines = ["", "## Until no run is worth its cost", "", STOPPED, ""]
    lines += ["| training | " + " | ".join(SETTINGS.values()) + " |", "|---|" + "---|" * len(SETTINGS)]
    for days in TRAINING_DAYS:
        cells = []
        for setting in SETTINGS:
            figures = []
            for group in groups[setting]:
                rows, times = tuned(group, most=len(group.strategies), training_s=days * DAY_S), np.array(group.time_s)
                best = np.nanmin(times[rows]) / np.nanmin(times) - 1
                spent_s = len(rows) * RUN.start_s + RUN.steps * np.nansum(times[rows])
                untuned = group.regret(row_order(group))[0]
                figures.append((len(rows), 100 * best, 100 * spent_s / (days * DAY_S), 100 * untuned))
            cells.append("{:.1f} runs, {:.2f} + {:.2f}, untuned {:.2f}".format(*np.mean(figures, axis=0)))
        lines.append(f"| {days:g} d | " + " | ".join(cells) + " |")
    return lines


def _mean_regrets(name: str, groups: Mapping[str, Sequence[Group]], spreads: Spreads) -> str:
    """Return the row of one set of constants."""
    cells = []
    for setting in SETTINGS:
        regrets, _ = _replayed(groups[setting], lambda group, _: tuned(group, spreads), 1)
        cells.append(", ".join(f"{regrets[:, count - 1].mean():.2f}" for count in RUNS))
    return f"| {name} | " + " | ".join(cells) + " |"


def _replayed(groups: Sequence[Group], way: Way, repeats: int) -> tuple[Floats, float]:
    """Return the regrets in per cent (groups x runs), and the failed starts among three."""
    regrets, failed = [], []
    for group in groups:
        orders = [way(group, seed) for seed in range(repeats)]
        regrets.append(100 * np.mean([group.regret(rows) for rows in orders], axis=0))
        failed.append(np.mean([np.isnan(np.array(group.time_s)[list(rows[:3])]).sum() for rows in orders]))
    return np.array(regrets), float(np.mean(failed))


if __name__ == "__main__":
    sys.exit(main())
