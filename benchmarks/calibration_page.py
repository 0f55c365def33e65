"""The page that ``calibration.py`` writes of what it measured."""

import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import date

import numpy as np
from calibration_groups import DRAWS, RUNS, SMALLEST, TENS, Accuracy, Curves, Group

from forerun.simulator.calibration.residual import USUAL, ErrorPriors
from forerun.simulator.score_table import Floats


def page(
    found: Sequence[Accuracy],
    honest: Sequence[Accuracy],
    settings: Mapping[str, ErrorPriors],
    groups_: Sequence[Group],
    curves: Sequence[Curves],
    seconds: float,
) -> list[str]:
    """Return the result as lines of Markdown."""
    held, held_honest = (sum(one.held for one in part) for part in (found, honest))
    before, after, drawn_ = (_mean(found, name) for name in ("before", "after", "random"))
    possible = sum(one.luckiest <= max(0.04, one.before / 2) for one in found)
    likely = sum(one.lucky <= max(0.04, one.before / 2) for one in found)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    lines = [
        f"# Calibration with ten runs, {date.today()}",
        "",
        "    python benchmarks/calibration.py DIR",
        "",
        f"After commit {commit.stdout.strip()}; {platform.machine()}, Python {platform.python_version()}, "
        f"numpy {np.__version__}; {seconds:.0f} s on one core, which others shared.",
        "",
        f"{len(found)} groups of {SMALLEST} measured runs or more; {sum(o.rest for o in found)} runs predicted that "
        "were not fitted. Without the source: settings of the residual were chosen on groups of other sources alone.",
        "",
        "| asked | reached | settings chosen without the source |",
        "|---|---|---|",
        "| ten runs chosen by the tool: the median error of the rest halves or falls under 4 % | "
        f"{held} of {len(found)} groups; mean of the medians {before} before, {after} after ({drawn_} with random "
        f"runs) | {held_honest} of {len(found)}; {_mean(honest, 'after')} after |",
        f"| 90 % intervals contain 85 to 95 % of the rest | {_inside(found)} | {_inside(honest)} |",
    ]
    if curves:
        lines.append(_regret_line(curves))
    lines += [
        "",
        f"What a choice of ten could reach: the best of {TENS} random tens meets the aim in {possible} groups, one in "
        f"twenty in {likely}. In the others no choice does; there the model lacks something, or the runs repeat that "
        "badly.",
        "",
        "## Errors of the runs that were not measured",
        "",
        "Medians in per cent. Best: of twenty random tens and of all that were tried (known only afterwards). Without: "
        "settings chosen without the source. Width: half the 90 % interval. Fitted: constants that the ten runs "
        "determine; the others stay at the catalogue's.",
        "",
        "| group | runs | before | after | without | random | best of 20 | best | within interval | width | fitted |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(accuracy_line(one, other) for one, other in zip(found, honest, strict=True)),
        "",
        "## Intervals, source by source",
        "",
        "Share of the runs that were not measured within their 90 % interval, in per cent.",
        "",
        "| source | runs | within | settings chosen without it | those settings, where they differ |",
        "|---|---|---|---|---|",
    ]
    for source, chosen in settings.items():
        own, other = ([one for one in part if one.source == source] for part in (found, honest))
        moved = [
            f"{field.name} {getattr(chosen, field.name):.3g} ({getattr(USUAL, field.name):.3g})"
            for field in fields(ErrorPriors)
            if getattr(chosen, field.name) != getattr(USUAL, field.name)
        ]
        cells = [source, str(sum(one.rest for one in own)), _inside(own), _inside(other), ", ".join(moved) or "none"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines + (_curve_lines(groups_, curves) if curves else [])


def _mean(found: Sequence[Accuracy], name: str) -> str:
    return _pct(float(np.mean([getattr(one, name) for one in found])))


def _inside(found: Sequence[Accuracy]) -> str:
    return _pct(float(np.average([one.inside for one in found], weights=[one.rest for one in found])))


def _means(curves: Sequence[Curves]) -> tuple[Floats, Floats, Floats]:
    chosen, drawn, used = (np.mean([getattr(c, name) for c in curves], axis=0) for name in ("chosen", "drawn", "used"))
    return chosen, drawn, used


def _regret_line(curves: Sequence[Curves]) -> str:
    chosen, drawn, _ = _means(curves)
    enough = [n for n in range(1, RUNS + 1) if chosen[n] <= drawn[2 * n]]
    return (
        "| the regret of a random choice with at most half its runs | mean regret of n chosen runs is at most that of "
        f"2n random ones for {len(enough)} of n = 1 to {RUNS} | |"
    )


def _curve_lines(groups_: Sequence[Group], curves: Sequence[Curves]) -> list[str]:
    chosen, drawn, used = _means(curves)
    lines = [
        "",
        "## Regret of the choice",
        "",
        "How much slower than the fastest run of its group the strategy believed fastest is, after n runs; mean over "
        f"groups, in per cent. Random: mean over {DRAWS} draws.",
        "",
        "| runs | chosen | random | random, twice as many | chosen, fitted after every run |",
        "|---|---|---|---|---|",
    ]
    for n in range(RUNS + 1):
        cells = [chosen[n], drawn[n], drawn[2 * n], used[n]]
        lines.append(f"| {n} | " + " | ".join(f"{100 * cell:.2f}" for cell in cells) + " |")
    lines += [
        "",
        "Every group, after 0, 2, 5 and 10 runs chosen (fitted after every run), and 10 and 20 random ones:",
        "",
        "| group | 0 | 2 | 5 | 10 | random 10 | random 20 |",
        "|---|---|---|---|---|---|---|",
    ]
    for group, c in zip(groups_, curves, strict=True):
        cells = [*c.used[[0, 2, 5, 10]], c.drawn[10], c.drawn[20]]
        lines.append(f"| {_named(group.name)} | " + " | ".join(f"{100 * cell:.1f}" for cell in cells) + " |")
    return lines


def accuracy_line(one: "Accuracy", other: "Accuracy | None" = None) -> str:
    after, without = (
        "" if part is None else _pct(part.after) if part.held else f"**{_pct(part.after)}**" for part in (one, other)
    )
    cells = [_named(one.name), str(one.runs), _pct(one.before), after, without, _pct(one.random), _pct(one.lucky)]
    return "| " + " | ".join([*cells, _pct(one.luckiest), _pct(one.inside), _pct(one.width), one.fitted]) + " |"


def _named(group: str) -> str:
    """Return a group's name as a cell of a table."""
    return group.replace("|", ", ")


def _pct(share: float) -> str:
    return f"{100 * share:.1f}"
