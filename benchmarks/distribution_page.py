"""The page that ``distribution.py`` writes of what it measured."""

import os
from typing import Any

KINDS = (("serial", 1), ("processes", 1), ("processes", 2), ("ray", 1), ("ray", 2))
"""Workers that are compared, and how many of each."""


def markdown(date: str, document: dict[str, Any]) -> list[str]:
    """Return the results as a page."""
    about = document["machine"]
    lines = [f"# Distribution, {date}", ""]
    lines += [
        f"{about['cores']} cores, {about['system']}, Python {about['python']}, numpy {about['numpy']}, "
        f"Ray {about['ray']}, Optuna {about['optuna']}; load average at the start {about['load_average'][0]:.1f}. "
        "Made by `python benchmarks/distribution.py`."
    ]
    if rows := [row for row in document.get("scaling", []) if "missing" not in row]:
        lines += scaling_lines(rows)
    if rows := document.get("memory"):
        lines += ["", "## Memory of the driver", ""]
        lines += [
            "; ".join(f"{row['slices']:,} slices: {row['peak_mib']:.2f} MiB" for row in rows)
            + " (peak of tracemalloc, each slice with a full list of 1,000)."
        ]
    if rows := document.get("overhead"):
        lines += ["", "## Items that do nothing", "", "| workers | ms per item |", "|---|---:|"]
        lines += [f"| {row['workers']} {row['count']} | {1e3 * row['driver_s_per_item']:.3f} |" for row in rows]
    if rows := document.get("cluster"):
        lines += [
            "",
            "## Simulated clusters: one driver, slices of half to twice their target",
            "",
            "| workers | target of a slice, s | driver, ms per slice | efficiency |",
            "|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {r['workers']} | {r['slice_s']:.2f} | {1e3 * r['driver_s_per_item']:.3f} | {r['efficiency']:.1%} |"
            for r in rows
        ]
    if row := document.get("kills"):
        lines += ["", "## kill -9 of the driver at random moments", ""]
        lines += [
            f"{row['kills']} kills in {row['sweeps']} sweeps of 12 searches: {row['equal_to_undisturbed']} of "
            f"{row['sweeps']} end with the same bytes as the undisturbed one; {row['done_twice']} searches were "
            "recorded twice."
        ]
    if found := document.get("samplers"):
        lines += ["", f"## Samplers over {found['candidates']:.3g} candidates", ""]
        lines += [
            f"Llama 3 70B on 128 H100. Best flat strategy {found['flat_best_s']:.3f} s, best found "
            f"{found['best_s']:.3f} s ({found['flat_best_s'] / found['best_s'] - 1:.2%} faster). Strategies scored "
            "until within so much of it:",
            "",
            "| sampler | seed | scored | seconds | best, s | 2 % | 1 % | 0.1 % |",
            "|---|---:|---:|---:|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {run['sampler']} | {run['seed']} | {run['scored']} | {run['seconds']:.1f} | {run['best_s']:.3f} | "
            + " | ".join("never" if n is None else str(n) for n in run["needed"].values())
            + " |"
            for run in found["runs"]
        ]
    return lines


def scaling_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Return what scaling cost: ratios within a round, medians over rounds."""
    same = len({tuple(row["best"]) for row in rows}) == 1
    rounds = sorted({row["round"] for row in rows})
    lines = [
        "",
        f"## One search of {rows[0]['candidates']:,} candidates ({rows[0]['legal']:,} legal), {len(rounds)} rounds",
        "",
        f"Load average {min(r['load_average'] for r in rows):.1f} to {max(r['load_average'] for r in rows):.1f} on "
        f"{os.cpu_count()} cores: where it exceeds them, two workers cannot have two cores, and their ratio tells of "
        "the other work than of Ray. With a core for each: CPU seconds of the slices, and all waiting as it was. "
        "Ratios are taken within a round; each figure is the median over the rounds. "
        "Shares are of the workers' time from the first slice sent to the last that came back.",
        "",
        "| workers | wall, s | of one of the kind | with a core for each, s | of one of the kind | slices "
        "| between slices (scheduling, transfer) | until the first slice | after the last |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    one = {(row["round"], row["workers"]): row for row in rows if row["count"] == 1}
    for kind, count in KINDS:
        mine = [row for row in rows if (row["workers"], row["count"]) == (kind, count)]
        if mine:
            shares = [
                _median([row[name] / (count * row["wall_s"]) for row in mine])
                for name in ("between_s", "starting_s", "ending_s")
            ]
            cells = []
            for name in ("wall_s", "own_cores_s"):
                ratio = _median([row[name] / one[row["round"], kind][name] for row in mine])
                cells += [f"{_median([row[name] for row in mine]):.2f}", f"{ratio:.2f}"]
            cells += [f"{_median([row['slices'] for row in mine]):.0f}", *(f"{share:.1%}" for share in shares)]
            lines.append(f"| {kind} {count} | {' | '.join(cells)} |")
    return [*lines, "", f"Ten best candidates the same everywhere: {'yes' if same else 'NO'}."]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
